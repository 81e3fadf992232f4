package client

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The clock runs while an answer is due, and otherwise, as while the process gets nothing done,
// for two beats at most.
func TestRunClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRunClock()
		ctx, cancel := context.WithCancel(t.Context())
		var due atomic.Bool
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.run(ctx, due.Load)
		}()
		passes := func(wall, least, most time.Duration) {
			t.Helper()
			before := c.now()
			time.Sleep(wall)
			if passed := time.Duration(c.now() - before); passed < least || passed > most {
				t.Errorf("%v have passed in %v, want %v to %v", passed, wall, least, most)
			}
		}
		passes(time.Hour, 0, 2*beatEvery)
		due.Store(true)
		c.start()
		synctest.Wait()
		passes(time.Minute, time.Minute, time.Minute)
		due.Store(false)
		passes(time.Hour, 0, 3*beatEvery)
		cancel()
		<-ended
	})
}
