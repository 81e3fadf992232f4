package overload

import (
	"testing"
	"time"
)

// The share doubles in a second, and opens at once only when less is offered than three quarters of what the node answered.
func TestShareRises(t *testing.T) {
	for _, tc := range []struct {
		offered  float64
		passed   time.Duration
		from, to float64 // within a hundredth
	}{
		{3000, time.Second, 0.25, 0.5}, {3000, time.Second / 2, 0.25, 0.354}, {1000, 10 * time.Millisecond, 0.5, 0.503},
		{760, 10 * time.Millisecond, 0.5, 0.503}, {740, 10 * time.Millisecond, 0.5, 1}, {3000, time.Second, 0.75, 1},
	} {
		s := newShare(testTarget, time.Now())
		s.open, s.offered, s.capacity = tc.from, tc.offered, 1000
		if s.raise(tc.passed); s.open < tc.to-0.01 || s.open > tc.to+0.01 {
			t.Errorf("%+v: %v", tc, s.open)
		}
	}
}

// A probe that was sent before the share changed says nothing of the queue since.
func TestProbesFromBeforeAChange(t *testing.T) {
	begin := time.Now()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	s := newShare(testTarget, begin)
	for _, step := range []struct {
		sent, came int
		draining   bool
		late       bool // whether a queue is known to stand since some probe
	}{
		{10, 20, false, true},
		{60, 110, false, true},
		{118, 125, true, true}, // for more than 100 ms
		{122, 127, true, true}, // in time, and sent before the queue began to drain
		{126, 128, false, false},
		{127, 140, false, false}, // late, and sent while it drained
		{129, 141, false, true},
	} {
		s.observe(at(step.sent), at(step.came), counts{accepted: 1000, work: 1000, refused: 1000, atOnce: 1000})
		if s.draining != step.draining || s.since.IsZero() == step.late {
			t.Errorf("%+v: draining %v, late since %v", step, s.draining, s.since)
		}
	}
}
