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
	delay     int64 // nanoseconds
}

type timeline struct {
	name  string
	limit *Limit
	steps []timelineStep
}

func (tl timeline) play(t *testing.T) {
	t.Helper()
	if err := tl.limit.Validate(); err != nil {
		t.Fatal(err)
	}
	var c counter
	for i, step := range tl.steps {
		want := verdict{step.allowed, step.remaining, step.delay}
		if got := verdictOf(c.step(tl.limit, step.now, step.cost)); got != want {
			t.Errorf("step %d %+v: %+v", i, step, got)
		}
	}
}

func TestSlidingWindowTimeline(t *testing.T) {
	seven := &Limit{Algorithm: SlidingWindow, Limit: 7, Window: minute}
	for _, tl := range []timeline{
		{"the book: 5 in the previous minute, 3 in this one, 30 % into it", seven, []timelineStep{
			{at(1, 50), 5, true, 2, 0},
			{at(2, 10), 2, true, 1, 0}, // 2 + 5 x 90 % = 6.5 -> 6
			{at(2, 30), 1, true, 1, 0}, // 3 + 5 x 70 % = 6.5 -> 6: allowed
			{at(2, 30), 1, true, 0, 0}, // 4 + 5 x 70 % = 7.5 -> 7: and the next is the last
			{at(2, 30), 1, false, 0, 0},
		}},
		{"a denial consumes nothing", seven, []timelineStep{
			{at(1, 0), 5, true, 2, 0},
			{at(1, 1), 3, false, 2, 0},
			{at(1, 2), 2, true, 0, 0},
		}},
		{"a cost above the limit", seven, []timelineStep{{at(1, 0), 8, false, 7, 0}}},
		{"looking is free", seven, []timelineStep{
			{at(1, 0), 7, true, 0, 0},
			{at(1, 1), 0, true, 0, 0},
		}},
		{"two windows later all is free", seven, []timelineStep{
			{at(1, 0), 7, true, 0, 0},
			{at(2, 0), 1, false, 0, 0},
			{at(3, 0), 7, true, 0, 0},
		}},
		{"time that goes backwards frees nothing", seven, []timelineStep{
			{at(5, 50), 7, true, 0, 0},
			{at(4, 0), 1, false, 0, 0},
			{at(1, 0), 1, false, 0, 0},
			{at(5, 60), 1, false, 0, 0},
		}},
		{"a limit of nothing", &Limit{Algorithm: SlidingWindow, Window: minute}, []timelineStep{
			{at(1, 0), 1, false, 0, 0},
			{at(1, 0), 0, true, 0, 0},
		}},
		{"tokens come back to this window first, then to the previous one", seven, []timelineStep{
			{at(1, 50), 5, true, 2, 0},
			{at(2, 0), 2, true, 0, 0},
			{at(2, 0), -1, true, 1, 0},
			{at(2, 50), 0, true, 4, 0},  // 1 + 5 x 50 % = 3.5 -> 3
			{at(2, 50), -2, true, 5, 0}, // 0 + 4 x 50 %
			{at(2, 50), -9, true, 7, 0}, // never below zero use
			{at(2, 50), 7, true, 0, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestFixedWindowTimeline(t *testing.T) {
	five := &Limit{Algorithm: FixedWindow, Limit: 5, Window: minute}
	for _, tl := range []timeline{
		{"the book: 10 of 5 within a minute, across an edge", five, []timelineStep{
			{at(1, 50), 5, true, 0, 0},
			{at(1, 99), 1, false, 0, 0},
			{at(2, 0), 5, true, 0, 0},
			{at(2, 49), 1, false, 0, 0},
		}},
		{"a denial consumes nothing", five, []timelineStep{
			{at(1, 0), 4, true, 1, 0},
			{at(1, 1), 2, false, 1, 0},
			{at(1, 2), 1, true, 0, 0},
		}},
		{"looking is free", five, []timelineStep{
			{at(1, 0), 5, true, 0, 0},
			{at(1, 1), 0, true, 0, 0},
		}},
		{"time that goes backwards frees nothing", five, []timelineStep{
			{at(5, 50), 4, true, 1, 0},
			{at(4, 0), 2, false, 1, 0},
			{at(1, 0), 1, true, 0, 0},
			{at(5, 60), 1, false, 0, 0},
			{at(6, 0), 5, true, 0, 0},
		}},
		{"tokens come back, never below zero use", five, []timelineStep{
			{at(1, 0), 4, true, 1, 0},
			{at(1, 1), -2, true, 3, 0},
			{at(1, 2), -9, true, 5, 0},
			{at(1, 3), 6, false, 5, 0},
		}},
		{"a limit of nothing", &Limit{Algorithm: FixedWindow, Window: minute}, []timelineStep{
			{at(1, 0), 1, false, 0, 0},
			{at(1, 0), 0, true, 0, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestSlidingWindowLogTimeline(t *testing.T) {
	// clock returns the instant at minutes and seconds past one o'clock.
	clock := func(minutes, seconds int64) int64 { return (60+minutes)*minute + seconds*int64(time.Second) }
	two := &Limit{Algorithm: SlidingWindowLog, Limit: 2, Window: minute}
	for _, tl := range []timeline{
		{"the book: 2 per minute", two, []timelineStep{
			{clock(0, 1), 1, true, 1, 0},
			{clock(0, 30), 1, true, 0, 0},
			{clock(0, 50), 1, false, 0, 0}, // and not logged
			{clock(1, 40), 1, true, 1, 0},  // of the last minute nothing is left
		}},
		{"an instant counts for a minute, to the nanosecond", two, []timelineStep{
			{at(1, 0), 1, true, 1, 0},
			{at(1, 50), 1, true, 0, 0},
			{at(2, 0) - 1, 1, false, 0, 0},
			{at(2, 0), 1, true, 0, 0},
			{at(2, 50) - 1, 1, false, 0, 0},
			{at(2, 50), 2, false, 1, 0},
			{at(3, 0), 2, true, 0, 0},
		}},
		{"tokens come back, the newest first", &Limit{Algorithm: SlidingWindowLog, Limit: 9, Window: minute}, []timelineStep{
			{at(1, 0), 3, true, 6, 0},
			{at(1, 50), 3, true, 3, 0},
			{at(1, 60), -4, true, 7, 0},
			{at(2, 0), 0, true, 9, 0},
			{at(2, 0), -1, true, 9, 0},
		}},
		{"time that goes backwards frees nothing", two, []timelineStep{
			{at(5, 0), 2, true, 0, 0},
			{at(1, 0), 1, false, 0, 0},
			{at(6, 0) - 1, 1, false, 0, 0},
			{at(6, 0), 1, true, 1, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestSlidingWindowBucketsTimeline(t *testing.T) {
	seven := &Limit{Algorithm: SlidingWindowBuckets, Limit: 7, Window: minute, Buckets: 10}
	for _, tl := range []timeline{
		{"sub-windows of 6 s go one by one, a minute after their end", seven, []timelineStep{
			{at(1, 9), 3, true, 4, 0},
			{at(1, 10), 4, true, 0, 0},
			{at(2, 9), 1, false, 0, 0},
			{at(2, 10) - 1, 1, false, 0, 0},
			{at(2, 10), 1, true, 2, 0},
			{at(2, 20) - 1, 3, false, 2, 0},
			{at(2, 20), 3, true, 3, 0},
		}},
		{"tokens come back, the newest first", seven, []timelineStep{
			{at(1, 0), 3, true, 4, 0},
			{at(1, 50), 3, true, 1, 0},
			{at(1, 60), -4, true, 5, 0},
			{at(2, 10), 0, true, 7, 0},
		}},
		{"a minute ago is a sub-window ago if there is but one", &Limit{Algorithm: SlidingWindowBuckets, Limit: 2, Window: minute, Buckets: 1}, []timelineStep{
			{at(1, 99), 2, true, 0, 0},
			{at(2, 99), 1, false, 0, 0},
			{at(3, 0), 2, true, 0, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

// A month has 100, regardless of its length.
func TestCalendarTimeline(t *testing.T) {
	l := &Limit{Algorithm: FixedWindow, Limit: 100, Calendar: calendar(t, "month/Europe/Paris/15")}
	timeline{"from the 15th to the 15th", l, []timelineStep{
		{instant(t, "2024-02-15T00:00+01:00"), 60, true, 40, 0},
		{instant(t, "2024-03-14T23:59+01:00"), 41, false, 40, 0},
		{instant(t, "2024-03-14T23:59+01:00"), 40, true, 0, 0},
		{instant(t, "2024-03-15T00:00+01:00"), 100, true, 0, 0},
		{instant(t, "2024-03-01T00:00+01:00"), 1, false, 0, 0}, // time went backwards
		{instant(t, "2024-04-14T23:59+02:00"), -30, true, 30, 0},
		{instant(t, "2024-04-15T00:00+02:00"), 0, true, 100, 0},
	}}.play(t)
}

// What was used stays used when a rule changes under it.
func TestChangedLimitTimeline(t *testing.T) {
	for _, a := range []Algorithm{FixedWindow, SlidingWindow, TokenBucket, GCRA, SlidingWindowBuckets, SlidingWindowLog, LeakyBucket} {
		var c counter
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
			if d := c.step(l, 1e9, step.cost); d.Allowed != step.allowed || d.Remaining != step.remaining {
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
		{LeakyBucket, at(1, 0), at(1, 20), 3},
		{SlidingWindowLog, at(1, 0), at(1, 99), 3},
		{SlidingWindowLog, at(1, 0), at(2, 0), 3},
		{SlidingWindowBuckets, at(1, 0), at(2, 1), 3},
		{SlidingWindowBuckets, at(1, 0), at(2, 2), 3},
	} {
		l := &Limit{Algorithm: tc.algorithm, Limit: 5, Window: minute}
		var c counter
		takenAt := c.step(l, tc.first, 3).At
		c.step(l, tc.second, 2)
		c.giveBack(l, tc.second, takenAt, 3)
		if d := c.look(l, tc.second, 0); d.Remaining != tc.remaining {
			t.Errorf("%+v: %+v", tc, d)
		}
	}
}

// What a node whose clock is ahead has counted is not of this window.
func TestReturnFromTheFuture(t *testing.T) {
	for _, l := range []*Limit{
		{Algorithm: FixedWindow, Limit: 5, Window: minute},
		{Algorithm: FixedWindow, Limit: 5, Calendar: calendar(t, "minute/Asia/Kathmandu")},
		{Algorithm: SlidingWindow, Limit: 5, Window: minute},
		{Algorithm: SlidingWindowLog, Limit: 5, Window: minute},
		{Algorithm: SlidingWindowBuckets, Limit: 5, Window: minute},
	} {
		var c counter
		c.step(l, at(1, 0), 4)
		c.giveBack(l, at(1, 0), at(2, 0), 4)
		if d := c.look(l, at(1, 0), 0); d.Remaining != 1 {
			t.Errorf("%v: %+v", l.Algorithm, d)
		}
	}
}
