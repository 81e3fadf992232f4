package cluster

import (
	"fmt"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

func drawTake(t *rapid.T) shard.Take {
	take := shard.Take{
		Key: ring.Key{Hi: rapid.Uint64().Draw(t, "hi"), Lo: rapid.Uint64().Draw(t, "lo")},
		Limit: algorithms.Limit{
			Algorithm: algorithms.SlidingWindow,
			Limit:     rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "limit"),
			Window:    rapid.Int64Range(int64(algorithms.MinWindow), int64(algorithms.MaxWindow)).Draw(t, "window"),
		},
		Cost: rapid.Int64Range(0, algorithms.MaxCost).Draw(t, "cost"),
	}
	if rapid.Bool().Draw(t, "bucket") {
		take.Limit.Algorithm = algorithms.TokenBucket
		take.Limit.Burst = rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "burst")
	}
	return take
}

func TestQuestionsSurviveTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := []byte{wireVersion}
		var want []question
		for id := range rapid.Uint32Range(0, 5).Draw(t, "questions") {
			q := question{op: op(rapid.IntRange(1, 4).Draw(t, "op")), id: id}
			for range rapid.IntRange(0, 4).Draw(t, "takes") {
				take := drawTake(t)
				if q.op == opReturn {
					take.Decision.At = rapid.Int64Range(0, math.MaxInt64).Draw(t, "at")
				}
				q.group.Takes = append(q.group.Takes, take)
			}
			q.group.Peek = q.op == opPeek
			before := len(frame)
			frame = appendQuestion(frame, q.op, q.id, q.group.Takes)
			if size := len(frame) - before; size > questionSize(len(q.group.Takes)) {
				t.Fatalf("%d takes made %d bytes, the bound is %d", len(q.group.Takes), size, questionSize(len(q.group.Takes)))
			}
			want = append(want, q)
		}
		r := openFrame(frame)
		var got []question
		var takes []shard.Take
		for r.more() {
			var q question
			q, takes = r.question(takes)
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
		for range rapid.IntRange(0, 5).Draw(t, "takes") {
			d := algorithms.Decision{
				Allowed:   rapid.Bool().Draw(t, "room"),
				Remaining: rapid.Int64Range(0, algorithms.MaxLimit).Draw(t, "remaining"),
				At:        at,
				ResetAt:   at + rapid.Int64Range(0, 1<<60).Draw(t, "reset"),
				RetryAt:   at,
			}
			if !d.Allowed {
				d.RetryAt = rapid.OneOf(rapid.Just(int64(algorithms.Never)), rapid.Int64Range(at, at+1<<60)).Draw(t, "retry")
			}
			want.Takes = append(want.Takes, shard.Take{Decision: d})
		}
		r := openFrame(appendAnswer([]byte{wireVersion}, 7, &want))
		id, allowed, n := r.answerHead()
		got := shard.Group{Allowed: allowed}
		for range n {
			got.Takes = append(got.Takes, shard.Take{Decision: r.decision()})
		}
		if r.err != nil || r.more() || id != 7 || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\n got %+v\nwant %+v", r.err, got, want)
		}
	})
}

func TestFramesThatAreRefused(t *testing.T) {
	good := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(time.Second)}, Cost: 1}
	with := func(change func(*shard.Take)) []byte {
		take := good
		change(&take)
		return appendQuestion([]byte{wireVersion}, opDecide, 1, []shard.Take{take})
	}
	whole := with(func(*shard.Take) {})
	for _, tc := range []struct {
		name  string
		frame []byte
		want  string
	}{
		{"another version", []byte{2}, "frame of version 2, not 1"},
		{"nothing", nil, "frame ends within an item"},
		{"cut off", whole[:len(whole)-1], "frame ends within an item"},
		{"unknown op", appendQuestion([]byte{wireVersion}, 9, 3, nil), "question 3 has the unknown op 9"},
		{"too many takes", append(appendQuestion([]byte{wireVersion}, opDecide, 1, nil)[:6], 0x81, 0x08), "takes: 1025 is above 1024"},
		{"an algorithm of the future", with(func(t *shard.Take) { t.Limit.Algorithm = 99 }), "algorithm: algorithm(99) is not one of [sliding_window fixed_window token_bucket gcra]"},
		{"a burst where there is none", with(func(t *shard.Take) { t.Limit.Burst = 5 }), "burst: 5 is not for sliding_window, which has none"},
		{"no window", with(func(t *shard.Take) { t.Limit.Window = 0 }), "window: 0s is not between 10ms and 8784h0m0s"},
		{"a cost below zero", with(func(t *shard.Take) { t.Cost = -1 }), "cost: 18446744073709551615 is above 2147483648"},
	} {
		s := &countingLocal{}
		if _, err := new(batch).answer(s, nil, tc.frame); fmt.Sprint(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
		}
		if s.decided != 0 {
			t.Errorf("%s: something was decided all the same", tc.name)
		}
	}
}

// countingLocal counts what it is asked, and allows everything.
type countingLocal struct{ decided, returned int }

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

func FuzzServerFrame(f *testing.F) {
	take := shard.Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1, Window: int64(time.Second)}, Cost: 1}
	frame := appendQuestion([]byte{wireVersion}, opDecide, 1, []shard.Take{take, take})
	frame = appendQuestion(frame, opReturn, 0, []shard.Take{take})
	f.Add(appendQuestion(frame, opPing, 2, nil))
	f.Fuzz(func(t *testing.T, frame []byte) {
		answers, err := new(batch).answer(&countingLocal{}, nil, frame)
		if err != nil {
			return
		}
		r := openFrame(answers[lengthSize:])
		for len(answers) > 0 && r.more() {
			_, _, n := r.answerHead()
			for range n {
				r.decision()
			}
		}
		if len(answers) > 0 && r.err != nil {
			t.Errorf("our own answer: %v", r.err)
		}
	})
}

func FuzzClientFrame(f *testing.F) {
	g := shard.Group{Allowed: true, Takes: make([]shard.Take, 2)}
	f.Add(appendAnswer(appendAnswer([]byte{wireVersion}, 0, &g), 1, &shard.Group{}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		l := newLane(nil, DefaultAttemptTimeout, nil)
		l.closed.Store(true)
		l.breaker.closed = true
		a := &ask{done: make(chan struct{}, 1)}
		a.left.Store(1)
		groups := []*shard.Group{{Takes: make([]shard.Take, 2)}, {Takes: make([]shard.Take, 1)}}
		first, err := l.enqueue(a, groups)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.deliver(frame) // whatever it says, nobody may be left waiting:
		l.giveUp(a, first, len(groups), time.Now())
		a.finish(1)
		<-a.done
	})
}

func FuzzView(f *testing.F) {
	v, err := nextView(ring.DefaultParams, nil, []Member{{ID: "a", Address: "x:1", Incarnation: 1}, {ID: "b", Address: "y:1", Incarnation: 2}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := MarshalView(v)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := UnmarshalView(b)
		if err != nil {
			return
		}
		if again, err := MarshalView(v); err != nil {
			t.Errorf("accepted but cannot be written: %v", err)
		} else if _, err := UnmarshalView(again); err != nil {
			t.Errorf("accepted, written and refused: %v", err)
		}
	})
}

func TestViewRefusesDamage(t *testing.T) {
	v, err := nextView(ring.DefaultParams, &View{Number: 6}, []Member{{ID: "a", Address: "x:1", Incarnation: 1}, {ID: "b", Address: "y:1", Incarnation: 2}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := MarshalView(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnmarshalView(b)
	if err != nil || !reflect.DeepEqual(got, v) {
		t.Errorf("%v: %+v, want %+v", err, got, v)
	}
	for i := range b {
		damaged := append([]byte(nil), b...)
		damaged[i] ^= 1
		if other, err := UnmarshalView(damaged); err == nil && !reflect.DeepEqual(other, v) {
			t.Fatalf("byte %d damaged: accepted", i)
		}
	}
}
