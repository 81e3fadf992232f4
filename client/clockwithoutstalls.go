package client

import (
	"context"
	"sync/atomic"
	"time"
)

// beatEvery is how often a runClock looks whether the process runs.
const beatEvery = 10 * time.Millisecond

// runClock is a monotonic clock that stands still while this process gets nothing done: while its
// goroutines wait for a processor, or it is stopped. A node is silent by this clock: an
// answer that has come, and waits to be read, is no silence. The clock runs while an answer is
// due, and for two beats after that.
type runClock struct {
	last atomic.Pointer[beat]
	kick chan struct{} // has room for one; makes run look
}

// beat is a moment at which the process has run, by both clocks.
type beat struct {
	live int64 // above 0
	at   time.Time
}

func newRunClock() *runClock {
	c := &runClock{kick: make(chan struct{}, 1)}
	c.last.Store(&beat{1, time.Now()})
	return c
}

// now is in nanoseconds, above 0. Between two beats it goes on for twice the time that they should
// be apart.
func (c *runClock) now() int64 {
	last := c.last.Load()
	return last.live + int64(min(time.Since(last.at), 2*beatEvery))
}

// start makes the clock run, if it does not.
func (c *runClock) start() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// run makes the clock run whenever it was started, for as long as it is needed, until ctx ends.
func (c *runClock) run(ctx context.Context, needed func() bool) {
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		ticker.Stop()
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		ticker.Reset(beatEvery)
		for c.beat(); needed(); c.beat() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}
}

func (c *runClock) beat() { c.last.Store(&beat{c.now(), time.Now()}) }
