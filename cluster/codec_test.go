package cluster

import (
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

func drawTake(t *rapid.T) shard.Take {
	take := shard.Take{
		Key: ring.Key{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
		Limit: algorithms.Limit{
			Algorithm: rapid.SampledFrom(algorithms.All()).Draw(t, "algorithm"),
			Limit:     rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "limit"),
			Window:    rapid.Int64Range(int64(algorithms.MinWindow), int64(algorithms.MaxWindow)).Draw(t, "window"),
		},
		Cost:      rapid.Int64Range(-algorithms.MaxCost, algorithms.MaxCost).Draw(t, "cost"),
		Shadow:    rapid.Bool().Draw(t, "shadow"),
		Tentative: rapid.Bool().Draw(t, "tentative"),
		Strict:    rapid.Bool().Draw(t, "strict"),
	}
	l := &take.Limit
	l.Limit = min(l.Limit, l.Algorithm.MostTokens())
	if l.Algorithm.HasCalendars() && rapid.Bool().Draw(t, "calendar") {
		text := rapid.SampledFrom([]string{"day/UTC", "month/Europe/Paris/15", "quarter/America/Argentina/ComodRivadavia/3"}).Draw(t, "text")
		var err error
		if l.Calendar, err = algorithms.ParseCalendar(text); err != nil {
			t.Fatal(err)
		}
		l.Window = 0
	}
	if l.Algorithm.HasBuckets() {
		l.Buckets = rapid.Int64Range(0, algorithms.MaxBuckets).Draw(t, "buckets")
	}
	if l.Algorithm.Drains() {
		l.Burst = rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "burst")
		l.MaxDelay = rapid.Int64Range(0, int64(algorithms.MaxWindow)).Draw(t, "max delay")
		if l.Validate() != nil {
			l.MaxDelay = 0 // it would book more than a counter can hold
		}
	}
	return take
}

// appendTakes is appendRequest about takes alone.
func appendTakes(b []byte, o op, id uint32, takes []shard.Take) []byte {
	return appendRequest(b, o, id, &shard.Group{Takes: takes})
}

func TestWaitsSurviveTheWire(t *testing.T) {
	g := &shard.Group{Takes: make([]shard.Take, 3)}
	r := openFrame(appendWait([]byte{connVersion}, 7, g, maxDenialLease))
	if h := r.answerHead(); r.err != nil || r.more() || h.decided() || h != (answerHead{id: 7, takes: 3, wait: maxDenialLease, source: shard.Owner}) {
		t.Errorf("%v: %+v", r.err, h)
	}
}

// silentLocal decides nothing.
type silentLocal struct{ Local }

func (silentLocal) Decide([]shard.Group) {}

// Every answer of a node to a request is one that its asker understands: else the connection would end, and all
// that waits with it.
func TestUndecidedAnswer(t *testing.T) {
	refund := []shard.Take{take(ownershipKey(1), 10, -1)}
	for name, tc := range map[string]struct {
		leased time.Duration
		waits  bool
	}{"no node has answered": {0, false}, "leased meanwhile": {maxDenialLease + time.Millisecond, true}} {
		l, a, groups := healthyConn(), newTestCall(), groupsOf(1, 1)
		id, err := l.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(newLoneRouter())
		b.router.own.denialLeases.slot(refund[0].Key).told.Store(b.router.own.denialLeases.now() + int64(tc.leased))
		frame, err := b.answer(silentLocal{}, nil, appendTakes([]byte{connVersion}, opDecide, id, refund))
		if err != nil {
			t.Fatal(err)
		}
		if err := l.deliver(frame[lengthSize:]); err != nil || l.waiting != 0 || !undecided(groups[0]) || redirected(groups[0]) || groups[0].Waits != tc.waits {
			t.Errorf("%s: %v, %d requests wait, %+v", name, err, l.waiting, groups[0])
		}
	}
}

// An answer redirects every take that has moved, and no other.
func TestRedirectSurvivesTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := healthyConn()
		type told struct {
			key  ring.Key
			mark uint64
		}
		var want, got []told
		c.redirected = func(k ring.Key, mark uint64) bool {
			got = append(got, told{k, mark})
			return true
		}
		asked, answer := &shard.Group{Allowed: true}, &shard.Group{}
		for i := range rapid.IntRange(1, 4).Draw(t, "takes") {
			take := shard.Take{Key: ring.Key{Hi: uint64(i), Lo: rapid.Uint64().Draw(t, "lo")}}
			asked.Takes = append(asked.Takes, take)
			if i == 0 || rapid.Bool().Draw(t, "moved") {
				take.Source = shard.Redirected
				want = append(want, told{take.Key, take.Key.Lo})
			}
			answer.Takes = append(answer.Takes, take)
		}
		a := newTestCall()
		if _, err := c.enqueue(a, []*shard.Group{asked}, nil); err != nil {
			t.Fatal(err)
		}
		frame := appendRedirect([]byte{connVersion}, 1, answer, func(k ring.Key) uint64 { return k.Lo })
		if err := c.deliver(frame); err != nil || c.backlog != 0 || !slices.Equal(got, want) || asked.Allowed || !reflect.DeepEqual(asked.Takes, answer.Takes) {
			t.Fatalf("%v, backlog %d\n got %v %+v\nwant %v", err, c.backlog, got, asked, want)
		}
	})
}

// What is deferred is told when it is said that it may be, and weighs on nothing meanwhile.
func TestHeldAnswersOnTheWire(t *testing.T) {
	c, groups := healthyConn(), groupsOf(1, 3)
	answer := func(frame []byte) {
		t.Helper()
		if _, err := c.enqueue(newTestCall(), groups, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.deliver(frame); err != nil || c.waiting != 0 || c.backlog != 0 {
			t.Fatalf("%v: %d requests wait, %d takes", err, c.waiting, c.backlog)
		}
	}
	deferred := shard.Group{Takes: make([]shard.Take, 3), Allowed: true, Deferred: 5}
	deferred.Takes[1].Decision.Remaining = 7
	answer(appendAnswer([]byte{connVersion}, 1, &deferred, false))
	if g := groups[0]; !isDeferred(g) || g.Deferred != 5 || opOf(g) != opDeferred {
		t.Errorf("deferred: %+v", g)
	}
	setSource(groups[0], shard.Undecided)
	answer(appendWait([]byte{connVersion}, 2, groups[0], hopPause))
	if g := groups[0]; !isDeferred(g) || g.Deferred != 5 {
		t.Errorf("still deferred: %+v", g)
	}
	answer(appendReleased([]byte{connVersion}, 3, groups[0]))
	if g := groups[0]; !g.Allowed || g.Deferred != 0 || g.Takes[2].Source != shard.Owner || g.Takes[1].Decision.Remaining != 7 {
		t.Errorf("released: %+v", g)
	}
}

// A request that is to be asked again keeps no caller waiting any more, and counts against no bound.
func TestWaitAnswer(t *testing.T) {
	c, a := healthyConn(), newTestCall()
	groups := groupsOf(1, 3)
	if _, err := c.enqueue(a, groups, nil); err != nil {
		t.Fatal(err)
	}
	if err := c.deliver(appendWait([]byte{connVersion}, 1, groups[0], maxDenialLease)); err != nil {
		t.Fatal(err)
	}
	if again := time.Duration(a.again.Load()); c.waiting != 0 || c.backlog != 0 || again != maxDenialLease || !undecided(groups[0]) {
		t.Errorf("%d requests wait, %d takes; asked again after %v", c.waiting, c.backlog, again)
	}
}

func TestMarks(t *testing.T) {
	if a, b := markOf("a"), markOf("b"); a == 0 || b == 0 || a == b {
		t.Errorf("marks are %d and %d", a, b)
	}
}

func TestRequestsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := []byte{connVersion}
		var want []request
		for id := range rapid.Uint32Range(0, 5).Draw(t, "requests") {
			q := request{op: rapid.SampledFrom([]op{1, 2, 3, 4, 5, 6, 7, 8, 9, opKeep}).Draw(t, "op"), id: id}
			o, counted := q.op, shard.Undecided
			switch {
			case q.op == opReturn:
				by := rapid.SampledFrom([]shard.Source{shard.Owner, shard.Provisional, shard.Relayed, shard.Redirected}).Draw(t, "by")
				if o = returnOf(by); by != shard.Owner { // of which the other side is not told
					counted = by
				}
			case q.op.forStandby():
				q.how = role(rapid.IntRange(0, int(asRelay)).Draw(t, "how"))
				o = o.of(q.how)
			}
			takes := rapid.IntRange(1, 4).Draw(t, "takes")
			switch q.op {
			case opPing:
				takes = 0
			case opHot:
				takes = 1
			}
			for range takes {
				take := drawTake(t)
				if q.op == opReturn || q.op == opKeep {
					take.Source = counted
					take.Decision.At = rapid.Int64Range(0, math.MaxInt64).Draw(t, "at")
				}
				q.group.Takes = append(q.group.Takes, take)
			}
			q.group.Peek, q.group.Reset = q.op == opPeek, q.op == opReset
			switch q.op {
			case opLend, opHot:
				q.group.Lend, q.group.Tokens = rapid.Int64Range(1, shard.MaxTokenLease).Draw(t, "lend"), rapid.Int64Range(0, algorithms.MaxCost).Draw(t, "tokens")
			case opGiveBack:
				q.group.LentAt = rapid.Int64Range(1, math.MaxInt64).Draw(t, "lent at")
			case opReturn:
				if o.namesDecider() {
					q.group.By = rapid.Uint64().Draw(t, "mark")
				}
			case opDeferred:
				q.group.Deferred = rapid.Uint64Range(1, math.MaxInt64).Draw(t, "deferred")
			}
			if o := opOf(&q.group); q.op != opReturn && q.op != opKeep && q.op != opPing && q.op != opHot && o != q.op {
				t.Fatalf("op %d reads as %d", q.op, o)
			}
			before := len(frame)
			frame = appendRequest(frame, o, q.id, &q.group)
			if size := len(frame) - before; size > requestSize(&q.group) {
				t.Fatalf("%d takes made %d bytes, the bound is %d", len(q.group.Takes), size, requestSize(&q.group))
			}
			want = append(want, q)
		}
		r := openFrame(frame)
		var got []request
		var takes []shard.Take
		for r.more() {
			var q request
			takes = r.request(&q, takes)
			got = append(got, q)
		}
		if r.err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%v\n got %+v\nwant %+v", r.err, got, want)
		}
	})
}

func TestAnswersSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Int64Range(0, 1<<62).Draw(t, "at")
		want := shard.Group{Allowed: rapid.Bool().Draw(t, "allowed")}
		source := rapid.SampledFrom([]shard.Source{shard.Owner, shard.Relayed, shard.Provisional, shard.Deferred}).Draw(t, "source")
		for range rapid.IntRange(0, 5).Draw(t, "takes") {
			d := algorithms.Decision{
				Allowed:   rapid.Bool().Draw(t, "room"),
				Remaining: rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "remaining"),
				At:        at,
				ResetAt:   at + rapid.Int64Range(0, 1<<60).Draw(t, "reset"),
				RetryAt:   at,
			}
			if d.Allowed {
				d.Delay = rapid.Int64Range(0, int64(algorithms.MaxWindow)).Draw(t, "delay")
			} else {
				d.RetryAt = rapid.OneOf(rapid.Just(int64(algorithms.Never)), rapid.Int64Range(at, at+1<<60)).Draw(t, "retry")
			}
			contended := !d.Allowed && rapid.Bool().Draw(t, "contended")
			want.Takes = append(want.Takes, shard.Take{Decision: d, Contended: contended, Source: source})
		}
		if source == shard.Deferred {
			want.Deferred = rapid.Uint64Range(1, math.MaxInt64).Draw(t, "deferred")
		}
		if source == shard.Provisional && len(want.Takes) > 0 {
			want.By = rapid.Uint64().Draw(t, "by")
		}
		leased := rapid.Bool().Draw(t, "leased")
		if len(want.Takes) > 0 && rapid.Bool().Draw(t, "lent") {
			want.TokenLease = shard.TokenLease{
				Tokens: rapid.Int64Range(1, shard.MaxTokenLease).Draw(t, "tokens"), At: at, Until: at + rapid.Int64Range(0, int64(algorithms.MaxWindow)).Draw(t, "for"),
			}
		}
		r := openFrame(appendAnswer([]byte{connVersion}, 7, &want, leased))
		h := r.answerHead()
		got := shard.Group{Allowed: h.allowed, Deferred: h.deferred, By: h.by}
		if h.lent > 0 {
			got.TokenLease = shard.TokenLease{Tokens: h.lent, At: at, Until: at + h.lentFor}
		}
		for range h.takes {
			t := shard.Take{Source: h.source}
			t.Contended = r.decision(&t.Decision)
			got.Takes = append(got.Takes, t)
		}
		if r.err != nil || r.more() || h.id != 7 || h.leased != leased || !h.decided() || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\n got %+v\nwant %+v", r.err, got, want)
		}
	})
}

// The bound holds for the largest take that there can be, and a plain one is small.
func TestRequestSize(t *testing.T) {
	plain := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 100, Window: int64(time.Minute)}, Cost: 1}
	if got := len(appendTakes(nil, opDecide, 1, []shard.Take{plain})); got != 32 {
		t.Errorf("a plain take makes %d bytes, want 32", got)
	}
	longest, err := algorithms.ParseCalendar("quarter/America/Argentina/ComodRivadavia/3")
	if err != nil {
		t.Fatal(err)
	}
	largest := []shard.Take{{
		Limit: algorithms.Limit{
			Algorithm: algorithms.TokenBucket, Limit: algorithms.MaxLimit, Window: int64(algorithms.MaxWindow),
			Burst: algorithms.MaxLimit, MaxDelay: math.MaxInt64, Buckets: math.MaxInt64, Calendar: longest,
		},
		Cost:     -algorithms.MaxCost,
		Decision: algorithms.Decision{At: math.MaxInt64},
	}}
	g := &shard.Group{Takes: slices.Repeat(largest, maxTakes), LentAt: math.MaxInt64}
	size := len(appendRequest(nil, opReturn, math.MaxUint32, g))
	if most := requestSize(g); size > most || most > maxFrame {
		t.Errorf("%d bytes, the bound is %d, that of a frame %d", size, most, maxFrame)
	}
}

// answersOf answers every take with the same.
type answersOf algorithms.Decision

func (d answersOf) Decide(groups []shard.Group) {
	for i := range groups {
		for j := range groups[i].Takes {
			groups[i].Takes[j].Decision, groups[i].Takes[j].Source = algorithms.Decision(d), shard.Owner
		}
	}
}

func (answersOf) Return([]shard.Take) {}

func (answersOf) Keep([]shard.Take) {}

// The answers to a full frame fit the bound of theirs, although they may be longer.
func TestAnswersToAFullFrame(t *testing.T) {
	const now = 1_800_000_000 * int64(time.Second)
	for name, tc := range map[string]struct {
		window   time.Duration
		decision algorithms.Decision
	}{
		"denied for two years": {algorithms.MaxWindow, algorithms.Decision{At: now, ResetAt: now + 2*int64(algorithms.MaxWindow), RetryAt: now + 2*int64(algorithms.MaxWindow)}},
		"the longest there is": {algorithms.MinWindow, algorithms.Decision{At: now, Remaining: algorithms.MaxLimit, ResetAt: math.MaxInt64, RetryAt: math.MaxInt64 - 1}},
	} {
		take := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(tc.window)}, Cost: 1}
		frame := newFrame(nil)
		for len(frame) < lengthSize+maxFrame-requestSize(&shard.Group{Takes: []shard.Take{take}}) {
			frame = appendTakes(frame, opDecide, 1, []shard.Take{take})
		}
		out, err := newBatch(newLoneRouter()).answer(answersOf(tc.decision), nil, frame[lengthSize:])
		if err != nil || len(out) > lengthSize+maxAnswers {
			t.Errorf("%s: %d bytes, the bound is %d: %v", name, len(out)-lengthSize, maxAnswers, err)
		}
		here, there := net.Pipe()
		go func() {
			_ = writeFrame(there, out)
			_ = there.Close()
		}()
		c := healthyConn()
		c.inflight.add(waiting{call: newTestCall(), first: 1, groups: []*shard.Group{{Takes: []shard.Take{take}}}})
		c.waiting = 1
		if c.receive(here); c.waiting != 0 {
			t.Errorf("%s: %d bytes of answers were not read", name, len(out)-lengthSize)
		}
		_ = here.Close()
	}
}

func TestFramesThatAreRefused(t *testing.T) {
	good := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(time.Second)}, Cost: 1}
	with := func(change func(*shard.Take)) []byte {
		take := good
		change(&take)
		return appendTakes([]byte{connVersion}, opDecide, 1, []shard.Take{take})
	}
	whole := with(func(*shard.Take) {})
	dated := func(text string) []byte {
		f := slices.Clone(whole[:len(whole)-6]) // that is without window and cost
		f[1+6+16], f[1+6+16+1] = byte(algorithms.FixedWindow), flagCalendar
		return append(append(f, 2, byte(len(text))), text...)
	}
	flagged := func(flags byte, more ...byte) []byte {
		f := append(slices.Clone(whole), more...)
		f[1+6+16+1] = flags
		return f
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"another version", []byte{1}, "speaks version 1 of the protocol between nodes, and this node version 4: install the newer version of weir on that node"},
		{"nothing", nil, "frame ends within an item"},
		{"cut off", whole[:len(whole)-1], "frame ends within an item"},
		{"unknown op", appendTakes([]byte{connVersion}, 14, 3, nil), "request 3 has the unknown op 14"},
		{"an unknown op of a standby", appendTakes([]byte{connVersion}, opStandby, 3, nil), "request 3 has the unknown op 0"},
		{"a standby's denial lease", appendTakes([]byte{connVersion}, opStandby|opHot, 3, []shard.Take{good}), "request 3 asks the standby for op 7"},
		{"too many takes", append(appendTakes([]byte{connVersion}, opDecide, 1, nil)[:6], 0x81, 0x08), "takes: 1025 is above 1024"},
		{"an algorithm of the future", with(func(t *shard.Take) { t.Limit.Algorithm = 99 }), fmt.Sprintf("algorithm: algorithm(99) is not one of %v", algorithms.Names())},
		{"no limit", with(func(t *shard.Take) { t.Limit = algorithms.Limit{} }), fmt.Sprintf("algorithm: algorithm(0) is not one of %v", algorithms.Names())},
		{
			"no limit after another one", appendTakes([]byte{connVersion}, opDecide, 1, []shard.Take{good, {Cost: 1}}),
			fmt.Sprintf("algorithm: algorithm(0) is not one of %v", algorithms.Names()),
		},
		{"a burst where there is none", with(func(t *shard.Take) { t.Limit.Burst = 5 }), "burst: 5 is not for sliding_window, which has none"},
		{"no window", with(func(t *shard.Take) { t.Limit.Window = 0 }), "window: 0s is not between 10ms and 8784h0m0s"},
		{"too much given back", with(func(t *shard.Take) { t.Cost = -algorithms.MaxCost - 1 }), "cost: -2147483649 is not between -2147483648 and 2147483648"},
		{"too much taken", with(func(t *shard.Take) { t.Cost = algorithms.MaxCost + 1 }), "cost: 2147483649 is not between -2147483648 and 2147483648"},
		{"nothing asked for", appendTakes([]byte{connVersion}, opDecide, 3, nil), "request 3 of op 1 has 0 takes"},
		{"a hot group", appendTakes([]byte{connVersion}, opHot, 3, []shard.Take{good, good}), "request 3 of op 7 has 2 takes"},
		{"a ping about something", appendTakes([]byte{connVersion}, opPing, 3, []shard.Take{good}), "request 3 of op 4 has 1 takes"},
		{"a calendar of the future", dated("moon/UTC"), `calendar: "moon" is not one of [minute hour day week month quarter year]`},
		{"a calendar of many names", dated("month/UTC/01"), `calendar: "month/UTC/01" is written "month/UTC"`},
		{"a long calendar", dated(strings.Repeat("x", maxCalendar+1)), "calendar: 65 is above 64"},
		{"half a calendar", dated("month/UTC")[:35], "frame ends within an item"},
		{"a lease that is settled by a check", flagged(flagSettles), "op 1 settles a lease with 1 tokens"},
		{"a span without a trace", appendTrace([]byte{connVersion}, testSpanOf(trace.TraceID{}, trace.SpanID{1})), "trace: 00000000000000000000000000000000 has the span 0100000000000000"},
		{"half of a span", appendTrace([]byte{connVersion}, testSpan(1))[:traceSize], "frame ends within an item"},
		{"a flag for nothing", flagged(flagBurst, 0), "burst: 0 has a flag"},
	} {
		s := &countingLocal{}
		if _, err := newBatch(newLoneRouter()).answer(s, nil, tc.frame); fmt.Sprint(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if s.decided != 0 {
			t.Errorf("%s: something was decided all the same", tc.name)
		}
	}
}

// countingLocal counts what it is asked, and allows everything.
type countingLocal struct{ decided, returned, kept int }

func (l *countingLocal) Decide(groups []shard.Group) {
	for i := range groups {
		groups[i].Allowed = true
		for j := range groups[i].Takes {
			groups[i].Takes[j].Source = shard.Owner
			l.decided++
		}
	}
}

func (l *countingLocal) Return(takes []shard.Take) { l.returned += len(takes) }

func (l *countingLocal) Keep(takes []shard.Take) { l.kept += len(takes) }

// Every request of a frame is decoded alone, after any others.
func TestRequestsOfOneFrame(t *testing.T) {
	takes := []shard.Take{{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(time.Second)}, Cost: 1}}
	frame := []byte{connVersion}
	for id, o := range []op{opDecide, opReturn, opPeek, opReset, opReturn, opReturn, opKeep, opDecide} {
		frame = appendTakes(frame, o, uint32(id), takes)
	}
	frame = appendTakes(frame, opPing, 8, nil)
	local := &countingLocal{}
	answers, err := newBatch(newLoneRouter()).answer(local, nil, frame)
	if err != nil || local.decided != 4 || local.returned != 3 || local.kept != 1 {
		t.Errorf("%v: %d decided, %d returned, %d kept", err, local.decided, local.returned, local.kept)
	}
	var ids []uint32
	for r := openFrame(answers[lengthSize:]); r.more(); {
		ids = append(ids, r.answer().id)
	}
	if !slices.Equal(ids, []uint32{0, 2, 3, 7, 8}) {
		t.Errorf("answered: %v", ids)
	}
}

// A take whose decision is broken has none, and those before it keep theirs.
func TestBrokenAnswerHasNoDecision(t *testing.T) {
	sent := shard.Group{Allowed: true, Takes: slices.Repeat([]shard.Take{{Source: shard.Owner, Decision: algorithms.Decision{Allowed: true, Remaining: 5, At: 1, RetryAt: 1, ResetAt: 300}}}, 2)}
	frame := appendAnswer([]byte{connVersion}, 7, &sent, false)
	r := openFrame(frame[:len(frame)-1])
	h, got := r.answerHead(), shard.Group{Takes: make([]shard.Take, 2)}
	r.decisions(&h, &got, true)
	if r.err == nil || got.Takes[0] != sent.Takes[0] || got.Takes[1] != (shard.Take{}) {
		t.Errorf("%v: %+v", r.err, got.Takes)
	}
}

// answer reads an answer to its end.
func (r *reader) answer() answerHead {
	h := r.answerHead()
	for range h.redirected {
		r.redirectedTake(h.takes)
	}
	for i := 0; h.decided() && i < h.takes; i++ {
		r.decision(new(algorithms.Decision))
	}
	return h
}

// movingLocal is a countingLocal in which every second counter has moved away.
type movingLocal struct{ countingLocal }

func (l *movingLocal) Decide(groups []shard.Group) {
	l.countingLocal.Decide(groups)
	for i := range groups {
		for j := range groups[i].Takes {
			if t := &groups[i].Takes[j]; t.Key.Lo%2 == 1 {
				groups[i].Takes[0].Source, groups[i].Allowed = shard.Undecided, false
				t.Source = shard.Redirected
			}
		}
	}
}

func FuzzServerFrame(f *testing.F) {
	take := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(time.Second)}, Cost: 1}
	frame := appendTakes([]byte{connVersion}, opDecide, 1, []shard.Take{take, take})
	frame = appendTakes(frame, opReturn, 0, []shard.Take{take})
	take.Shadow, take.Cost = true, -1
	take.Limit = algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1, Window: int64(time.Second), Burst: 2, MaxDelay: int64(time.Second)}
	frame = appendTakes(frame, opPeek, 3, []shard.Take{take})
	day, err := algorithms.NewCalendar("day", "", 0)
	if err != nil {
		f.Fatal(err)
	}
	take.Limit = algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 1, Calendar: day}
	frame = appendTakes(frame, opReset, 4, []shard.Take{take})
	frame = appendTakes(frame, opPing, 2, nil)
	take.Key.Lo = 1
	f.Add(appendTakes(frame, opDecide, 2, []shard.Take{take}))
	f.Add(appendTakes(appendTrace(frame, testSpan(1)), opDecide, 2, []shard.Take{take}))
	f.Add(appendTakes(frame, opDecide|opStandby, 2, []shard.Take{take, take}))
	router := NewRouter(RouterConfig{Self: "a", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Tracer: sdktrace.NewTracerProvider().Tracer("test"), Metrics: prometheus.NewRegistry()})
	f.Fuzz(func(t *testing.T, frame []byte) {
		answers, err := newBatch(router).answer(&movingLocal{}, nil, frame)
		if err != nil {
			return
		}
		r := openFrame(answers[lengthSize:])
		for len(answers) > 0 && r.more() {
			r.answer()
		}
		if len(answers) > 0 && r.err != nil {
			t.Errorf("our own answer: %v", r.err)
		}
	})
}

func FuzzClientFrame(f *testing.F) {
	g := shard.Group{Allowed: true, Takes: make([]shard.Take, 2)}
	f.Add(appendAnswer(appendAnswer([]byte{connVersion}, 0, &g, false), 1, &shard.Group{}, false))
	g.Takes[0].Decision = algorithms.Decision{Allowed: true, Delay: 1}
	f.Add(appendAnswer([]byte{connVersion}, 1, &g, false))
	g.Takes[0].Source = shard.Redirected
	f.Add(appendRedirect([]byte{connVersion}, 1, &g, func(ring.Key) uint64 { return 7 }))
	f.Add(appendWait([]byte{connVersion}, 1, &g, maxDenialLease))
	f.Fuzz(func(t *testing.T, frame []byte) {
		c := newConn(nil, DefaultAttemptTimeout)
		c.healthy.Store(true)
		c.breaker.healthy = true
		a := &call{done: make(chan struct{}, 1)}
		a.left.Store(1)
		groups := []*shard.Group{{Takes: make([]shard.Take, 2)}, {Takes: make([]shard.Take, 1)}}
		first, err := c.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.deliver(frame) // for any answer, no caller may be left waiting:
		c.giveUp(a, first, time.Now())
		a.finish(1)
		<-a.done
	})
}

func TestAnswersThatAreRefused(t *testing.T) {
	answer := appendAnswer([]byte{connVersion}, 1, &shard.Group{Allowed: true, Takes: []shard.Take{{Decision: algorithms.Decision{Allowed: true}}}}, false)
	with := func(at int, v byte, more ...byte) []byte {
		f := append(slices.Clone(answer), more...)
		f[at] = v
		return f
	}
	for _, tc := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"as it should be", answer, "<nil>"},
		{"nothing that moved", []byte{connVersion, 1, 0, 0, 0, flagRedirect, 1, 0}, "redirected: 0 has a flag"},
		{"more that moved than was asked for", []byte{connVersion, 1, 0, 0, 0, flagRedirect, 1, 2}, "redirected: 2 is above 1"},
		{"something else that moved", append([]byte{connVersion, 1, 0, 0, 0, flagRedirect, 2, 1, 2}, make([]byte, 8)...), "index: 2 is above 1"},
		{"half of a mark", append([]byte{connVersion, 1, 0, 0, 0, flagRedirect, 2, 1, 1}, make([]byte, 7)...), "frame ends within an item"},
		{"a flag of the future", with(7, 16), "decision: flags 0x10 have more than the known 0xf"},
		{"half of what is deferred", []byte{connVersion, 1, 0, 0, 0, flagDeferred, 1}, "frame ends within an item"},
		{"a wait that is too long", append([]byte{connVersion, 1, 0, 0, 0, flagWait, 0}, binary.AppendUvarint(nil, uint64(maxDenialLease)+1)...), "wait: 20000001 is above 20000000"},
		{"too much lent", append([]byte{connVersion, 1, 0, 0, 0, flagLent, 0}, 0xc1, 0x84, 0x3d), "lent: 1000001 is above 1000000"},
		{"a delay of nothing", with(7, flagAllowed|flagDelay, 0), "delay: 0 has a flag"},
		{"cut off", answer[:len(answer)-1], "frame ends within an item"},
	} {
		if err := newConn(nil, DefaultAttemptTimeout).deliver(tc.frame); fmt.Sprint(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
	}
}
