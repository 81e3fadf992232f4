package algorithms

import (
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const minute = int64(time.Minute)

// at returns the instant at the share percent of the n-th minute.
func at(n, percent int64) int64 { return n*minute + percent*minute/100 }

func TestSlidingWindowTimeline(t *testing.T) {
	seven := &Limit{Algorithm: SlidingWindow, Limit: 7, Window: minute}
	for _, tl := range []struct {
		name  string
		limit *Limit
		steps []timelineStep
	}{
		{"the book: 5 in the previous minute, 3 in this one, 30 % into it", seven, []timelineStep{
			{at(1, 50), 5, true, 2},
			{at(2, 10), 2, true, 1}, // 2 + 5 x 90 % = 6.5 -> 6
			{at(2, 30), 1, true, 1}, // 3 + 5 x 70 % = 6.5 -> 6: allowed
			{at(2, 30), 1, true, 0}, // 4 + 5 x 70 % = 7.5 -> 7: and the next is the last
			{at(2, 30), 1, false, 0},
		}},
		{"a denial consumes nothing", seven, []timelineStep{
			{at(1, 0), 5, true, 2},
			{at(1, 1), 3, false, 2},
			{at(1, 2), 2, true, 0},
		}},
		{"a cost above the limit", seven, []timelineStep{{at(1, 0), 8, false, 7}}},
		{"looking is free", seven, []timelineStep{
			{at(1, 0), 7, true, 0},
			{at(1, 1), 0, true, 0},
		}},
		{"two windows later all is free", seven, []timelineStep{
			{at(1, 0), 7, true, 0},
			{at(2, 0), 1, false, 0},
			{at(3, 0), 7, true, 0},
		}},
		{"time that goes backwards frees nothing", seven, []timelineStep{
			{at(5, 50), 7, true, 0},
			{at(4, 0), 1, false, 0},
			{at(1, 0), 1, false, 0},
			{at(5, 60), 1, false, 0},
		}},
		{"a limit of nothing", &Limit{Algorithm: SlidingWindow, Window: minute}, []timelineStep{
			{at(1, 0), 1, false, 0},
			{at(1, 0), 0, true, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.limit.play(t, tl.steps) })
	}
}

type timelineStep struct {
	now, cost int64
	allowed   bool
	remaining int64
}

func (l *Limit) play(t *testing.T, steps []timelineStep) {
	t.Helper()
	var s State
	var d Decision
	for i, step := range steps {
		if s, d = Step(l, s, step.now, step.cost); d.Allowed != step.allowed || d.Remaining != step.remaining {
			t.Errorf("step %d %+v: allowed %v, remaining %d", i, step, d.Allowed, d.Remaining)
		}
	}
}

// twin is the dumb twin of the sliding-window counter: it keeps every hit and
// works in exact rationals.
type twin struct {
	hits   []hit
	latest int64 // the latest window that was written
}

type hit struct{ window, tokens int64 }

func (tw *twin) used(l *Limit, now int64) (window, used int64) {
	window = now / l.Window
	elapsed := now % l.Window
	if tw.latest > window {
		window, elapsed = tw.latest, 0
	}
	var cur, prev int64
	for _, h := range tw.hits {
		switch h.window {
		case window:
			cur += h.tokens
		case window - 1:
			prev += h.tokens
		}
	}
	weight := new(big.Rat).Sub(big.NewRat(1, 1), big.NewRat(elapsed, l.Window))
	carried := new(big.Rat).Mul(new(big.Rat).SetInt64(prev), weight)
	return window, cur + new(big.Int).Quo(carried.Num(), carried.Denom()).Int64()
}

func (tw *twin) step(l *Limit, now, cost int64) (allowed bool, remaining int64) {
	window, used := tw.used(l, now)
	tw.latest = window
	if allowed = cost == 0 || used+cost <= l.Limit; allowed {
		tw.hits = append(tw.hits, hit{window, cost})
		used += cost
	}
	return allowed, max(0, l.Limit-used)
}

func (tw *twin) giveBack(l *Limit, now, takenAt, tokens int64) {
	tw.latest, _ = tw.used(l, now)
	tw.hits = append(tw.hits, hit{takenAt / l.Window, -tokens})
}

func drawLimit(t *rapid.T) *Limit {
	return &Limit{
		Algorithm: SlidingWindow,
		Limit:     rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, MaxLimit)).Draw(t, "limit"),
		Window:    rapid.OneOf(rapid.Int64Range(int64(MinWindow), int64(time.Second)), rapid.Int64Range(int64(MinWindow), int64(MaxWindow))).Draw(t, "window"),
	}
}

// drawMove returns how far the clock moves: often within the window, often to
// about its edge, sometimes far, sometimes backwards.
func drawMove(t *rapid.T, l *Limit) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, l.Window/4),
		rapid.Int64Range(l.Window-2, l.Window+2),
		rapid.Int64Range(0, 3*l.Window),
		rapid.Int64Range(-2*l.Window, 0),
	).Draw(t, "move")
}

func TestSlidingWindowAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		var s State
		var tw twin
		now := rapid.Int64Range(0, 1<<62).Draw(t, "start")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = max(0, now+drawMove(t, l))
			cost := rapid.OneOf(rapid.Int64Range(0, max(1, l.Limit/2)), rapid.Int64Range(0, MaxCost)).Draw(t, "cost")
			before := s
			var d Decision
			s, d = Step(l, s, now, cost)
			allowed, remaining := tw.step(l, now, cost)
			if d.Allowed != allowed || d.Remaining != remaining {
				t.Fatalf("at %d cost %d: %+v, the twin says %v, remaining %d", now, cost, d, allowed, remaining)
			}
			checkInstants(t, l, before, s, d, cost)
			if d.Allowed && cost > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				now += rapid.Int64Range(0, l.Window).Draw(t, "later")
				s = Return(l, s, now, d.At, cost)
				tw.giveBack(l, now, d.At, cost)
			}
		}
	})
}

// checkInstants proves RetryAt and ResetAt to the nanosecond: at them it is so,
// and just before it is not.
func checkInstants(t *rapid.T, l *Limit, before, after State, d Decision, cost int64) {
	allowedAt := func(now int64) bool { _, d := Step(l, before, now, cost); return d.Allowed }
	wholeAt := func(now int64) bool { _, d := Step(l, after, now, 0); return d.Remaining == l.Limit }
	switch {
	case d.Allowed && d.RetryAt != d.At:
		t.Fatalf("allowed at %d, and yet retry at %d", d.At, d.RetryAt)
	case d.RetryAt == Never:
		if cost <= l.Limit {
			t.Fatalf("cost %d would fit into %d some day", cost, l.Limit)
		}
	case !allowedAt(d.RetryAt):
		t.Fatalf("denied at RetryAt %d", d.RetryAt)
	case !d.Allowed && allowedAt(d.RetryAt-1):
		t.Fatalf("allowed before RetryAt %d", d.RetryAt)
	}
	if !wholeAt(d.ResetAt) {
		t.Fatalf("not reset at ResetAt %d", d.ResetAt)
	}
	if d.ResetAt > d.At && wholeAt(d.ResetAt-1) {
		t.Fatalf("reset before ResetAt %d", d.ResetAt)
	}
}

// From ResetAt on the state may be forgotten: it decides as the zero state does.
func TestForgettingAfterResetChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t)
		now := rapid.Int64Range(0, 1<<62).Draw(t, "start")
		var kept State
		var d Decision
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			now += rapid.Int64Range(0, l.Window).Draw(t, "move")
			kept, d = Step(l, kept, now, rapid.Int64Range(0, l.Limit).Draw(t, "cost"))
		}
		now = d.ResetAt
		forgotten := State{}
		for range 5 {
			now += rapid.Int64Range(0, l.Window).Draw(t, "later")
			cost := rapid.Int64Range(0, MaxCost).Draw(t, "cost")
			var a, b Decision
			kept, a = Step(l, kept, now, cost)
			forgotten, b = Step(l, forgotten, now, cost)
			if a != b {
				t.Fatalf("kept: %+v, forgotten: %+v", a, b)
			}
		}
	})
}

func TestNoOverflowAtTheExtremes(t *testing.T) {
	l := &Limit{Algorithm: SlidingWindow, Limit: MaxLimit, Window: int64(MaxWindow)}
	s, d := Step(l, State{}, math.MaxInt64-1, MaxCost)
	if !d.Allowed || d.Remaining != 0 || d.ResetAt != math.MaxInt64 {
		t.Errorf("%+v", d)
	}
	if _, d = Step(l, s, math.MaxInt64, MaxCost); d.Allowed || d.RetryAt < math.MaxInt64-1 {
		t.Errorf("%+v", d)
	}
}

func TestValidate(t *testing.T) {
	ok := Limit{Algorithm: SlidingWindow, Limit: 1, Window: int64(time.Second)}
	with := func(change func(*Limit)) Limit { l := ok; change(&l); return l }
	for _, tc := range []struct {
		limit Limit
		want  string
	}{
		{ok, "<nil>"},
		{Limit{}, "algorithm: algorithm(0) is not one of [sliding_window]"},
		{with(func(l *Limit) { l.Limit = -1 }), "limit: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Limit = MaxLimit + 1 }), "limit: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Window = 9_999_999 }), "window: 9.999999ms is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Window = int64(MaxWindow) + 1 }), "window: 8784h0m0.000000001s is not between 10ms and 8784h0m0s"},
	} {
		if got := fmt.Sprint(tc.limit.Validate()); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.limit, got, tc.want)
		}
	}
}

func TestNamesParse(t *testing.T) {
	for _, name := range Names() {
		if a, ok := Parse(name); !ok || a.String() != name {
			t.Errorf("%s parses to %v, %v", name, a, ok)
		}
	}
	for _, name := range []string{"", "algorithm(0)", "sliding-window"} {
		if a, ok := Parse(name); ok {
			t.Errorf("%q parses to %v", name, a)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, bc := range []struct {
		name  string
		limit int64
	}{{"allowed", MaxLimit}, {"denied", 10}} {
		b.Run(bc.name, func(b *testing.B) {
			l := &Limit{Algorithm: SlidingWindow, Limit: bc.limit, Window: int64(time.Second)}
			now := time.Now().UnixNano()
			var s State
			b.ReportAllocs()
			for b.Loop() {
				now += 1000
				s, _ = Step(l, s, now, 1)
			}
		})
	}
}
