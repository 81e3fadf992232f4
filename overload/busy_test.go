package overload

import (
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
