package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

func TestSweepDropsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		done := make(chan error)
		ctx := t.Context()
		go func() { done <- s.Run(ctx) }()
		for i := range 5000 {
			ask(s, key("short", i), algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 5, Window: int64(time.Second)}, 1)
		}
		ask(s, key("long", 0), perHour(5), 5)
		time.Sleep(3*time.Second + sweepRound) // the end of a window is rounded up to a second
		if s.Len() != 1 {
			t.Errorf("%d counters after the sweep, want 1", s.Len())
		}
		if d := ask(s, key("long", 0), perHour(5), 1); d.Allowed {
			t.Error("the sweep dropped a live counter")
		}
		t.Cleanup(func() {
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}
