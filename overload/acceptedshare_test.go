package overload

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

// A node that is late while it counts as busy counts as busy for no shorter time.
func TestBusyIsNotCutShort(t *testing.T) {
	c, now := New(testTarget, nil, prometheus.NewRegistry()), time.Now()
	c.started = now.Add(-time.Minute)
	s := newShare(testTarget, now)
	until := int64(time.Minute + time.Second)
	c.busy.Store(until)
	c.accepted.Store(2 * minWaiting)
	if c.observe(&s, now.Add(-2*testTarget), now); c.busy.Load() != until {
		t.Errorf("busy until %v, it was %v", time.Duration(c.busy.Load()), time.Duration(until))
	}
}

// A node is busy while a probe is overdue, and not because one was under way.
func TestBusyWhileAProbeIsOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(testTarget, nil, prometheus.NewRegistry())
		r, w := io.Pipe()
		held := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { c.run(t.Context(), r, heldWriter{w, held}) })
		c.accepted.Store(2 * minWaiting)
		time.Sleep(probeEvery + testTarget)
		if c.Busy() {
			t.Error("busy before the probe is overdue")
		}
		time.Sleep(time.Millisecond)
		if !c.Busy() {
			t.Error("not busy while the probe is overdue")
		}
		close(held)
		_ = w.Close() // which ends the run
		running.Wait()
	})
	c, now := New(testTarget, nil, prometheus.NewRegistry()), time.Now()
	c.started = now.Add(-time.Minute)
	s := newShare(testTarget, now)
	c.due.Store(1)
	c.observe(&s, now, now)
	if c.accepted.Store(2 * minWaiting); c.Busy() {
		t.Error("busy after a probe that was in time")
	}
}

// heldWriter writes nothing until held is closed.
type heldWriter struct {
	io.WriteCloser
	held chan struct{}
}

func (w heldWriter) Write(b []byte) (int, error) {
	<-w.held
	return w.WriteCloser.Write(b)
}
