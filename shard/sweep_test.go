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

// A decision that has read the clock before the sweeper, and gets the lock after it, finds the same
// counters, or is made at a later instant.
func TestSweepIsNotAheadOfDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour)) - 1)
		k, hour := key("a", 0), algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 10, Window: int64(time.Hour)}
		ask(s, k, hour, 10)
		before := s.now()
		time.Sleep(time.Nanosecond)
		s.sweep(s.partition(k))
		g := []Group{{Takes: []Take{{Key: k, Limit: hour, Cost: 10}}}}
		s.decide(g, before)
		if at := g[0].Takes[0].Decision.At; !g[0].Allowed || at != before+1 {
			t.Errorf("%+v, decided %d ns before the sweep", g[0], before+1-at)
		}
	})
}

// The sweeper finds all expired counters, a few slots at a time, in tables of any emptiness, and drops no
// others.
func TestSweepVisitsEverySlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
		for i := range 10_000 {
			window := time.Second * time.Duration(1+i%3)
			ask(s, key("k", i), algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 1, Window: int64(window)}, 1)
		}
		p := &s.partitions[0]
		for p.table.moving != nil {
			p.table.move(s.arena, 1<<20, 0)
		}
		left := 10_000
		for over, n := range []int{3334, 3333, 3333} {
			time.Sleep(time.Second - 1)
			if s.sweep(p); s.Len() != left {
				t.Errorf("%d counters a nanosecond early, want %d", s.Len(), left)
			}
			time.Sleep(time.Nanosecond)
			left -= n
			if s.sweep(p); s.Len() != left {
				t.Errorf("%d counters after %d s, want %d", s.Len(), over+1, left)
			}
		}
	})
}

// A step of the sweeper visits a few slots, also where they are empty.
func TestSweepStepIsBounded(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 22})
	p := &s.partitions[0]
	for i := range 50_000 {
		ask(s, key("k", i), perHour(10), 1)
	}
	for p.table.moving != nil {
		p.table.move(s.arena, 1<<20, 0)
	}
	for i := range 50_000 {
		s.deleteLocked(p, key("k", i))
	}
	steps := 0
	for next, more := uint64(0), true; more; steps++ {
		next, more = s.sweepLocked(p, next, 1)
	}
	if least := p.table.homes / sweepStep; steps < least || steps > least+2 {
		t.Errorf("%d steps for %d slots", steps, p.table.homes)
	}
}

// A refund that is undone is remembered for as long as it weighs.
func TestReturnedRefundIsNotSwept(t *testing.T) {
	for _, limit := range []algorithms.Limit{perHour(10), logPerHour(10)} {
		synctest.Test(t, func(t *testing.T) {
			s := newShard(t)
			k := key("a", 1)
			ask(s, k, limit, 8)
			g := []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: -8}}}}
			s.Decide(g)
			s.Return(g[0].Takes)
			s.sweep(s.partition(k))
			if d := ask(s, k, limit, 0); d.Remaining != 2 {
				t.Errorf("%v: %+v", limit.Algorithm, d)
			}
		})
	}
}
