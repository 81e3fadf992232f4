package algorithms

import (
	"testing"
	"time"
)

const minute = int64(time.Minute)

// at returns the instant at the share percent of the n-th minute.
func at(n, percent int64) int64 { return n*minute + percent*minute/100 }

// timelineStep asks for cost at now; what must come back follows.
type timelineStep struct {
	now, cost int64
	allowed   bool
	remaining int64
}

type timeline struct {
	name  string
	limit *Limit
	steps []timelineStep
}

func (tl timeline) play(t *testing.T) {
	t.Helper()
	var s State
	var d Decision
	for i, step := range tl.steps {
		if s, d = Step(tl.limit, s, step.now, step.cost); d.Allowed != step.allowed || d.Remaining != step.remaining {
			t.Errorf("step %d %+v: allowed %v, remaining %d", i, step, d.Allowed, d.Remaining)
		}
	}
}

func TestSlidingWindowTimeline(t *testing.T) {
	seven := &Limit{Algorithm: SlidingWindow, Limit: 7, Window: minute}
	for _, tl := range []timeline{
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
		{"tokens come back to this window first, then to the previous one", seven, []timelineStep{
			{at(1, 50), 5, true, 2},
			{at(2, 0), 2, true, 0},
			{at(2, 0), -1, true, 1},
			{at(2, 50), 0, true, 4},  // 1 + 5 x 50 % = 3.5 -> 3
			{at(2, 50), -2, true, 5}, // 0 + 4 x 50 %
			{at(2, 50), -9, true, 7}, // never below zero use
			{at(2, 50), 7, true, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestFixedWindowTimeline(t *testing.T) {
	five := &Limit{Algorithm: FixedWindow, Limit: 5, Window: minute}
	for _, tl := range []timeline{
		{"the book: 10 of 5 within a minute, across an edge", five, []timelineStep{
			{at(1, 50), 5, true, 0},
			{at(1, 99), 1, false, 0},
			{at(2, 0), 5, true, 0},
			{at(2, 49), 1, false, 0},
		}},
		{"a denial consumes nothing", five, []timelineStep{
			{at(1, 0), 4, true, 1},
			{at(1, 1), 2, false, 1},
			{at(1, 2), 1, true, 0},
		}},
		{"looking is free", five, []timelineStep{
			{at(1, 0), 5, true, 0},
			{at(1, 1), 0, true, 0},
		}},
		{"time that goes backwards frees nothing", five, []timelineStep{
			{at(5, 50), 4, true, 1},
			{at(4, 0), 2, false, 1},
			{at(1, 0), 1, true, 0},
			{at(5, 60), 1, false, 0},
			{at(6, 0), 5, true, 0},
		}},
		{"tokens come back, never below zero use", five, []timelineStep{
			{at(1, 0), 4, true, 1},
			{at(1, 1), -2, true, 3},
			{at(1, 2), -9, true, 5},
			{at(1, 3), 6, false, 5},
		}},
		{"a limit of nothing", &Limit{Algorithm: FixedWindow, Window: minute}, []timelineStep{
			{at(1, 0), 1, false, 0},
			{at(1, 0), 0, true, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestTokenBucketTimeline(t *testing.T) {
	four := &Limit{Algorithm: TokenBucket, Limit: 4, Window: minute}
	for _, tl := range []timeline{
		{"the book: a bucket of 4, refilled 4 per minute", four, []timelineStep{
			{at(1, 0), 1, true, 3},
			{at(1, 0), 3, true, 0}, // empty
			{at(1, 20), 1, false, 0},
			{at(1, 25), 1, true, 0}, // 1 in 15 s
			{at(2, 25), 4, true, 0}, // full again in a minute
		}},
		{"a bucket is never more than full", four, []timelineStep{
			{at(1, 0), 4, true, 0},
			{at(1, 50), 0, true, 2},
			{at(9, 0), 5, false, 4},
			{at(9, 0), 4, true, 0},
			{at(9, 0), 1, false, 0},
		}},
		{"10 of 4 per minute at once, then 4 per minute", &Limit{Algorithm: TokenBucket, Limit: 4, Window: minute, Burst: 10}, []timelineStep{
			{at(1, 0), 10, true, 0},
			{at(1, 99), 4, false, 3},
			{at(2, 0), 4, true, 0},
			{at(3, 50), 0, true, 6},
			{at(4, 50), 11, false, 10},
		}},
		{"tokens come back, never more than the bucket holds", four, []timelineStep{
			{at(1, 0), 4, true, 0},
			{at(1, 0), -1, true, 1},
			{at(1, 0), -9, true, 4},
			{at(1, 0), 5, false, 4},
		}},
		{"time that goes backwards frees nothing", four, []timelineStep{
			{at(5, 0), 3, true, 1},
			{at(4, 0), 2, false, 1},
			{at(1, 0), 1, true, 0}, // and an hour lost does not lock out for an hour
			{at(5, 24), 1, false, 0},
			{at(5, 25), 1, true, 0},
		}},
		{"a limit of nothing, whatever the burst", &Limit{Algorithm: TokenBucket, Window: minute, Burst: 9}, []timelineStep{
			{at(1, 0), 1, false, 0},
			{at(1, 0), 0, true, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestGCRATimeline(t *testing.T) {
	for _, tl := range []timeline{
		{"one every 15 s, none early", &Limit{Algorithm: GCRA, Limit: 4, Window: minute, Burst: 1}, []timelineStep{
			{at(1, 0), 1, true, 0},
			{at(1, 24), 1, false, 0},
			{at(1, 25), 1, true, 0},
			{at(1, 60), 1, true, 0}, // late: the next is due 15 s from here
			{at(1, 75), 1, false, 0},
			{at(1, 85), 1, true, 0},
		}},
		{"one every 15 s, two early", &Limit{Algorithm: GCRA, Limit: 4, Window: minute, Burst: 3}, []timelineStep{
			{at(1, 0), 1, true, 2}, // the next is expected at 25 %,
			{at(1, 0), 1, true, 1}, // at 50 %,
			{at(1, 0), 1, true, 0}, // at 75 %: more than two early
			{at(1, 24), 1, false, 0},
			{at(1, 25), 1, true, 0},
			{at(2, 0), 3, true, 0},
		}},
		{"3 per second do not divide a second: the third is exact", &Limit{Algorithm: GCRA, Limit: 3, Window: 1e9, Burst: 1}, []timelineStep{
			{0, 1, true, 0},
			{333_333_333, 1, false, 0},
			{333_333_334, 1, true, 0}, // due at 333,333,333 1/3
			{666_666_667, 1, false, 0},
			{666_666_668, 1, true, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

// What was used stays used when a rule changes under it.
func TestChangedLimitTimeline(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket, GCRA} {
		var s State
		for _, step := range []struct {
			limit, cost int64
			allowed     bool
			remaining   int64
		}{
			{10, 8, true, 2},
			{5, 1, false, 0},  // lowered: 3 above it
			{5, -4, true, 1},  // given back: 4 used
			{20, 0, true, 16}, // raised
			{0, 1, false, 0},  // blocked
			{10, 6, true, 0},  // and unblocked
		} {
			l := &Limit{Algorithm: a, Limit: step.limit, Window: 1e9}
			var d Decision
			if s, d = Step(l, s, 1e9, step.cost); d.Allowed != step.allowed || d.Remaining != step.remaining {
				t.Errorf("%v %+v: allowed %v, remaining %d", a, step, d.Allowed, d.Remaining)
			}
		}
	}
}

// 3 taken, 30 s or an edge later 2 more; then the 3 are returned.
func TestReturnTimeline(t *testing.T) {
	for _, tc := range []struct {
		algorithm     Algorithm
		first, second int64
		remaining     int64
	}{
		{FixedWindow, at(1, 0), at(1, 50), 3},
		{FixedWindow, at(1, 50), at(2, 0), 3}, // the 3 are gone already: the 2 stay
		{SlidingWindow, at(1, 0), at(1, 50), 3},
		{SlidingWindow, at(1, 50), at(2, 50), 3},
		{SlidingWindow, at(1, 50), at(3, 0), 3},
		{TokenBucket, at(1, 0), at(1, 20), 3}, // 1 of the 3 has drained
		{TokenBucket, at(1, 0), at(1, 50), 3}, // 2 and a half
		{TokenBucket, at(1, 0), at(2, 0), 3},  // all: the 2 stay
		{GCRA, at(1, 0), at(2, 0), 3},
	} {
		l := &Limit{Algorithm: tc.algorithm, Limit: 5, Window: minute}
		s, d := Step(l, State{}, tc.first, 3)
		s, _ = Step(l, s, tc.second, 2)
		s = Return(l, s, tc.second, d.At, 3)
		if _, d := Step(l, s, tc.second, 0); d.Remaining != tc.remaining {
			t.Errorf("%+v: %+v", tc, d)
		}
	}
}
