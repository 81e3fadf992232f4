package shard

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
)

// Counters of long algorithms behave as any other.
func TestLongCounters(t *testing.T) {
	for _, limit := range []algorithms.Limit{logPerHour(3), slidingBucketsPerHour(3)} {
		t.Run(limit.Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShard(t)
				k := key("a", 1)
				want := func(what string, d algorithms.Decision, allowed bool, remaining int64) {
					t.Helper()
					if d.Allowed != allowed || d.Remaining != remaining {
						t.Errorf("%s: %+v", what, d)
					}
				}
				want("a look", ask(s, k, limit, 0), true, 3)
				want("more than there is", ask(s, k, limit, 4), false, 3)
				want("a refund without a counter", ask(s, k, limit, -1), true, 3)
				if s.Len() != 0 || s.longBytes.Load() != 0 {
					t.Errorf("%d counters of %d bytes for nothing", s.Len(), s.longBytes.Load())
				}
				want("2 of 3", ask(s, k, limit, 2), true, 1)
				want("2 more", ask(s, k, limit, 2), false, 1)
				want("a refund", ask(s, k, limit, -1), true, 2)
				g := []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: 2}}}}
				s.Decide(g)
				want("what another node has denied", g[0].Takes[0].Decision, true, 0)
				s.Return(g[0].Takes)
				want("returned", ask(s, k, limit, 0), true, 2)
				g = []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: -1}}}}
				s.Decide(g)
				want("a refund that another node has denied", g[0].Takes[0].Decision, true, 3)
				s.Return(g[0].Takes)
				want("returned", ask(s, k, limit, 0), true, 2)
				g = []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: 1}, {Key: key("b", 2), Limit: perHour(1), Cost: 2}}}}
				s.Decide(g)
				want("denied with another", g[0].Takes[0].Decision, true, 2)
				want("which took nothing", ask(s, k, limit, 0), true, 2)
				g = []Group{{Peek: true, Takes: []Take{{Key: k, Limit: limit, Cost: 1}}}}
				s.Decide(g)
				want("a peek", g[0].Takes[0].Decision, true, 1)
				want("which took nothing", ask(s, k, limit, 0), true, 2)
				g = []Group{{Reset: true, Takes: []Take{{Key: k, Limit: limit}}}}
				s.Decide(g)
				want("reset", g[0].Takes[0].Decision, true, 3)
				if s.Len() != 0 || s.longBytes.Load() != 0 {
					t.Errorf("%d counters of %d bytes left", s.Len(), s.longBytes.Load())
				}
			})
		})
	}
}

func TestLongCountersAreSwept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		short := logPerHour(5)
		short.Window = int64(time.Second)
		for i := range 1000 {
			ask(s, key("short", i), short, 1)
		}
		ask(s, key("long", 0), logPerHour(5), 5)
		time.Sleep(time.Second)
		for i := range s.partitions {
			s.sweep(&s.partitions[i])
		}
		if s.Len() != 1 || ask(s, key("long", 0), logPerHour(5), 1).Allowed {
			t.Errorf("%d counters after the sweep", s.Len())
		}
		if got := testutil.ToFloat64(s.metrics.expired); got != 1000 {
			t.Errorf("%v counted as expired, want 1000", got)
		}
	})
}

// A flood of new logs stays within the memory limit, and evicts no counter at its limit.
func TestLongBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64
		each := int64(longOverhead + limit*16)
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 4 * each})
		for range limit {
			ask(s, key("full", 0), logPerHour(limit), 1)
			time.Sleep(time.Nanosecond)
		}
		for i := range 1000 {
			for range 16 {
				ask(s, key("fresh", i), logPerHour(limit), 1)
				time.Sleep(time.Nanosecond)
			}
			if got := s.longBytes.Load(); got > s.maxLong {
				t.Fatalf("%d bytes, the bound is %d", got, s.maxLong)
			}
		}
		if ask(s, key("full", 0), logPerHour(limit), 1).Allowed {
			t.Error("the flood freed it")
		}
		if got := testutil.ToFloat64(s.metrics.evicted); got < float64(1001-s.Len()) { // some came twice
			t.Errorf("%v evictions counted, %d counters left of 1001", got, s.Len())
		}
		time.Sleep(time.Hour + time.Second)
		evicted := testutil.ToFloat64(s.metrics.evicted)
		for i := range 4 { // what is over goes first, and is no eviction
			for range limit {
				ask(s, key("later", i), logPerHour(limit), 1)
				time.Sleep(time.Nanosecond)
			}
		}
		if got := testutil.ToFloat64(s.metrics.evicted); got != evicted || s.longBytes.Load() > s.maxLong {
			t.Errorf("%v evictions of what was over, %d bytes", got-evicted, s.longBytes.Load())
		}
	})
}

// One counter of a long algorithm is never too large.
func TestLongCounterStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 1})
		ask(s, key("log", 0), logPerHour(5), 5)
		if ask(s, key("log", 0), logPerHour(5), 1).Allowed {
			t.Error("the only one was evicted")
		}
		for i := range 2 * smallest {
			ask(s, key("plain", i), perHour(5), 1)
		}
		if ask(s, key("log", 0), logPerHour(5), 1).Allowed || s.Len() != 1+smallest {
			t.Errorf("counters of another kind have freed it; %d counters", s.Len())
		}
	})
}

func TestLongDecideAllocatesNothing(t *testing.T) {
	s := newShard(t)
	for _, limit := range []algorithms.Limit{logPerHour(5), slidingBucketsPerHour(1 << 30)} {
		groups := []Group{{Takes: []Take{{Key: key(limit.Algorithm.String(), 0), Limit: limit, Cost: 1}}}}
		for range 10 {
			s.Decide(groups)
		}
		if n := testing.AllocsPerRun(1000, func() { s.Decide(groups) }); n != 0 {
			t.Errorf("%v: %v allocations per decision, want 0", limit.Algorithm, n)
		}
	}
}

// After any operation that shrinks a log, its counted bytes are its real ones.
func TestLongBytesFollowRefunds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		k, limit := key("a", 1), logPerHour(64)
		for range 64 {
			ask(s, k, limit, 1)
			time.Sleep(time.Nanosecond)
		}
		s.Decide([]Group{{Takes: []Take{{Key: k, Limit: limit, Cost: -50}, {Key: k, Limit: limit, Cost: -10}}}})
		e := s.partition(k).long[k]
		if got := s.longBytes.Load(); got != int64(longOverhead+e.counter.Bytes()) || e.share != math.MaxUint16/16+1 {
			t.Errorf("%d bytes counted of %d, a share of %d/65535 used", got, longOverhead+e.counter.Bytes(), e.share)
		}
		ask(s, k, limit, 0)
		if got := s.longBytes.Load(); got != int64(longOverhead+e.counter.Bytes()) || got > longOverhead+64*16/4 {
			t.Errorf("%d bytes counted of %d after a look", got, longOverhead+e.counter.Bytes())
		}
	})
}
