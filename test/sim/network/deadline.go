package network

import (
	"sync"
	"time"
)

// deadline is an instant that may be changed while others wait for it.
type deadline struct {
	mu    sync.Mutex
	timer *time.Timer   // nil if there is none; guarded by mu
	sets  int           // how often it was set; guarded by mu
	over  chan struct{} // closed when it has passed; guarded by mu
}

func newDeadline() *deadline { return &deadline{over: make(chan struct{})} }

// set moves it to t; the zero time means never.
func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.sets++
	if isClosed(d.over) {
		d.over = make(chan struct{})
	}
	if t.IsZero() {
		return
	}
	// A timer of no duration would crash a bubble under the race detector.
	if left, nth := time.Until(t), d.sets; left > 0 {
		d.timer = time.AfterFunc(left, func() { d.pass(nth) })
	} else {
		close(d.over)
	}
}

// pass ends the deadline that was set as the nth, unless another was set since.
func (d *deadline) pass(nth int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sets == nth {
		close(d.over)
	}
}

// wait returns a channel that is closed when the deadline, as it is now, has passed.
func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

func (d *deadline) passed() bool { return isClosed(d.wait()) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
