package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
)

// Tokens counted in a shared counter stay counted when there is room again.
func TestSharedThenOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		for i := range smallest {
			ask(s, key("half", i), perHour(10), 5)
		}
		k := key("k", 0)
		g := []Group{{Takes: []Take{{Key: k, Limit: perHour(3), Cost: 1}}}}
		s.Decide(g)
		ask(s, k, perHour(3), 1)
		for i := range 5 {
			s.Decide([]Group{{Reset: true, Takes: []Take{{Key: key("half", i), Limit: perHour(10)}}}})
		}
		if d := ask(s, k, perHour(3), 0); d.Remaining != 1 {
			t.Errorf("a look before it has its own: %+v", d)
		}
		if a, b := ask(s, k, perHour(3), 1), ask(s, k, perHour(3), 1); !a.Allowed || b.Allowed {
			t.Errorf("the third and fourth of three: %+v, %+v", a, b)
		}
		s.Return(g[0].Takes)
		if d := ask(s, k, perHour(3), 2); d.Allowed || d.Remaining != 1 {
			t.Errorf("one of three given back: %+v", d)
		}
		time.Sleep(2 * time.Hour)
		if d := ask(s, key("later", 0), perHour(3), 0); d.Remaining != 3 {
			t.Errorf("hours after the last that was shared: %+v", d)
		}
	})
}

// A group keeps its own counters to their limits, even in a table full of others that cannot be evicted.
func TestGroupAtTheBrim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		for i := range smallest {
			ask(s, key("full", i), perHour(10), 10)
		}
		for i := range int64(200) {
			ask(s, key("shared", int(i)), perHour(1000+i), 1000+i)
		}
		allowed := 0
		for range 50 {
			g := []Group{{Takes: []Take{{Key: key("x", 0), Limit: perHour(5), Cost: 1}, {Key: key("y", 0), Limit: perHour(6), Cost: 1}}}}
			if s.Decide(g); g[0].Allowed {
				allowed++
			}
		}
		if allowed != 5 {
			t.Errorf("%d allowed of 5", allowed)
		}
		if n := s.partitions[0].table.n; n > pageSlots*brimNum/brimDen {
			t.Errorf("%d counters in %d slots", n, pageSlots)
		}
	})
}

// A large group adds only as many counters as there is room for before it is known to stay, and they are
// not evicted for the rest of it.
func TestLargeGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		for i := range smallest {
			ask(s, key("light", i), perHour(100), 1)
		}
		var takes []Take
		for i := range 1000 {
			takes = append(takes, Take{Key: key("x", i), Limit: perHour(2000), Cost: 1})
		}
		g := []Group{{Takes: append(takes, Take{Key: key("denied", 0), Limit: perHour(1), Cost: 2})}}
		if s.Decide(g); g[0].Allowed || s.Len() != smallest || s.Bytes() > 2*pageBytes {
			t.Errorf("denied: %d counters, %d bytes", s.Len(), s.Bytes())
		}
		g = []Group{{Takes: takes}}
		if s.Decide(g); !g[0].Allowed || s.Len() > pageSlots {
			t.Errorf("%d counters", s.Len())
		}
		for i := range takes {
			if d := ask(s, takes[i].Key, perHour(2000), 0); d.Remaining == 2000 {
				t.Fatalf("%d counts nothing", i)
			}
		}
	})
}

// A counter emptied by a group's give-back may be dropped for another take of the group. If a third take
// denies the group, it is there again.
func TestUndoOfDroppedCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 100 * MinBytes(1)})
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // it is over now, not in a second
		p, bucket := &s.partitions[0], algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour)}
		dropped := 0
		for i := 0; dropped == 0; i++ {
			if i == 1000 {
				t.Fatal("never dropped")
			}
			k := key("k", i)
			ask(s, k, bucket, 10)
			g := []Group{{Takes: []Take{
				{Key: k, Limit: bucket, Cost: -10},
				{Key: key("new", i), Limit: bucket, Cost: 1},
				{Key: key("denied", i), Limit: bucket, Cost: 11},
			}}}
			before := s.Len()
			s.Decide(g)
			if d := ask(s, k, bucket, 1); g[0].Allowed || d.Allowed || s.Len() != before || s.Len() != p.table.n {
				t.Fatalf("%d: %+v, %+v, %d counters", i, g[0], d, s.Len())
			}
			dropped = int(testutil.ToFloat64(s.metrics.expired))
		}
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
