package shard

import (
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

func TestEvictionWithinAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		a, b := Take{Key: key("a", 0), Limit: perHour(10), Cost: 6}, Take{Key: key("b", 0), Limit: perHour(10), Cost: 1}
		g := []Group{{Takes: []Take{a, b, a}}}
		if s.Decide(g); g[0].Allowed || s.Len() != 0 {
			t.Errorf("6 + 6 of 10 with another counter in between: allowed %v, %d counters", g[0].Allowed, s.Len())
		}
		for i := range smallest {
			ask(s, key("light", i), perHour(10), 1)
		}
		g = []Group{{Takes: []Take{b, a, a}}}
		if s.Decide(g); g[0].Allowed || s.Len() != smallest || testutil.ToFloat64(s.metrics.evicted) != 0 {
			t.Errorf("a denied group has evicted a counter: allowed %v, %d counters", g[0].Allowed, s.Len())
		}
		g = []Group{{Takes: []Take{a, b}}}
		if s.Decide(g); !g[0].Allowed || s.Len() != smallest || ask(s, a.Key, perHour(10), 5).Allowed ||
			ask(s, b.Key, perHour(10), 0).Remaining != 9 || testutil.ToFloat64(s.metrics.evicted) != 2 {
			t.Errorf("allowed %v, %d counters, want the two that it has counted among them", g[0].Allowed, s.Len())
		}
	})
}

// A full shard holds newcomers to their limits too, although they are the least used.
func TestNewcomersStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, perHour := range map[string]func(int64) algorithms.Limit{"short": perHour, "long": logPerHour} {
			s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 4 * longOverhead})
			for i := range smallest {
				ask(s, key("light", i), perHour(10), 2)
			}
			allowed := 0
			for range 10 {
				g := []Group{{Takes: []Take{
					{Key: key("new", 0), Limit: perHour(5), Cost: 1},
					{Key: key("new", 1), Limit: perHour(50), Cost: 1},
				}}}
				if s.Decide(g); g[0].Allowed {
					allowed++
				}
			}
			if allowed != 5 {
				t.Errorf("%s: %d allowed, want the limit of 5", name, allowed)
			}
		}
	})
}

// Where all counters have used half of their limits, none makes room: those that come
// later share a counter with all that have the same limit.
func TestOverflowIsSharedByLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		for i := range smallest {
			ask(s, key("half", i), perHour(10), 5)
		}
		group := func(names ...string) bool {
			var takes []Take
			for _, name := range names {
				takes = append(takes, Take{Key: key(name, 0), Limit: perHour(3), Cost: 1})
			}
			g := []Group{{Takes: takes}}
			s.Decide(g)
			return g[0].Allowed
		}
		for i, step := range []struct {
			limit   int64
			name    string
			allowed bool
		}{
			{7, "a", true}, {7, "b", true}, {7, "c", true}, {7, "d", true}, {7, "a", true}, {7, "b", true}, {7, "e", true},
			{7, "a", false}, {7, "f", false},
			{8, "a", true}, // another limit, another counter
		} {
			if d := ask(s, key(step.name, 0), perHour(step.limit), 1); d.Allowed != step.allowed {
				t.Errorf("step %d: %+v", i, d)
			}
		}
		longer := perHour(7)
		longer.Window *= 2
		if d := ask(s, key("a", 0), longer, 1); !d.Allowed {
			t.Errorf("another window, another counter: %+v", d)
		}
		if group("g", "h", "i", "j") || !group("g", "h", "i") || group("k") {
			t.Error("a group of four of three has passed, or has counted")
		}
		if n := testutil.ToFloat64(s.metrics.shared); n != 8+1+3 {
			t.Errorf("%v takes counted as shared", n)
		}
		for i := range smallest {
			if ask(s, key("half", i), perHour(10), 0).Remaining != 5 {
				t.Errorf("%d was evicted", i)
			}
		}
		for i := range int64(1000) {
			ask(s, key("other", 0), perHour(1000+i), 1)
		}
		if s.Len() > pageSlots {
			t.Errorf("%d counters", s.Len())
		}
		time.Sleep(2 * time.Hour)
		s.sweep(&s.partitions[0])
		for range 2 { // now there is room
			for i := range smallest {
				ask(s, key("later", i), perHour(4), 2)
			}
		}
		for i := range smallest {
			if d := ask(s, key("later", i), perHour(4), 0); d.Remaining != 0 {
				t.Errorf("%+v", d)
			}
		}
	})
}

// What drains more slowly since its limit was lowered is remembered for longer.
func TestLoweredLimitIsRememberedWhileItWeighs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: int64(time.Hour)}
		alone, first, second := key("alone", 0), key("grouped", 0), key("grouped", 1)
		lowered := bucket
		lowered.Limit = 10
		for _, l := range []algorithms.Limit{bucket, lowered} {
			ask(s, alone, l, 1000)
			s.Decide([]Group{{Takes: []Take{{Key: first, Limit: l, Cost: 1000}, {Key: second, Limit: l, Cost: 1000}}}})
		}
		time.Sleep(2 * time.Hour)
		for i := range s.partitions {
			s.sweep(&s.partitions[i])
		}
		for _, k := range []ring.Key{alone, first, second} {
			if d := ask(s, k, lowered, 1); d.Allowed || d.RetryAt-d.At != int64(97*time.Hour+6*time.Minute) {
				t.Errorf("1000 used of 10 per hour, two hours later: %+v", d)
			}
		}
	})
}

// A group that just fits evicts nothing.
func TestGroupFillsTheShard(t *testing.T) {
	s := newSmallShard(t)
	for i := range smallest - 2 {
		ask(s, key("light", i), perHour(10), 1)
	}
	a, b := Take{Key: key("a", 0), Limit: perHour(10), Cost: 6}, Take{Key: key("b", 0), Limit: perHour(10), Cost: 1}
	s.Decide([]Group{{Takes: []Take{a, b}}})
	if s.Len() != smallest || testutil.ToFloat64(s.metrics.evicted) != 0 {
		t.Errorf("%d counters, want %d", s.Len(), smallest)
	}
}

// What is over at this very instant goes before who has used little.
func TestEvictionPrefersExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		second := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 10, Window: int64(time.Second)}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		for i := range smallest {
			if i%8 == 0 {
				ask(s, key("live", i), perHour(1000), 1)
			} else {
				ask(s, key("over", i), second, 10)
			}
		}
		time.Sleep(time.Second)
		for i := range smallest / 2 {
			ask(s, key("new", i), perHour(10), 1)
		}
		for i := 0; i < smallest; i += 8 {
			if ask(s, key("live", i), perHour(1000), 0).Remaining == 1000 {
				t.Errorf("live counter %d was evicted", i)
			}
		}
		if got := testutil.ToFloat64(s.metrics.expired); got < smallest/2 || testutil.ToFloat64(s.metrics.evicted) != 0 {
			t.Errorf("%v expired", got)
		}
	})
}

// When many counters are over, the process is told once, and not when few are.
func TestRelieve(t *testing.T) {
	for n, want := range map[int]int32{100_000: 0, 600_000: 1} {
		synctest.Test(t, func(t *testing.T) {
			var relieved atomic.Int32
			s := newShardOf(t, Config{Partitions: 16, MaxBytes: 64 << 20, Relieve: func() { relieved.Add(1) }})
			ctx := t.Context()
			go func() { _ = s.Run(ctx) }()
			short := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 5, Window: int64(time.Second)}
			for i := range n {
				ask(s, key("short", i), short, 1)
			}
			time.Sleep(4 * sweepRound) // one in which they go, the rest in which nothing does
			if got := relieved.Load(); s.Len() != 0 || got != want {
				t.Errorf("of %d counters %d are left, and the process was told %d times, not %d", n, s.Len(), got, want)
			}
		})
	}
}

func TestFullShardEvictsTheLeastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		for i := range smallest {
			ask(s, key("used", i), perHour(100), 1+int64(i%2)*48)
		}
		for i := range smallest / 4 {
			ask(s, key("fresh", i), perHour(2), 1)
		}
		for i := range smallest {
			if i%2 == 1 && ask(s, key("used", i), perHour(100), 0).Remaining == 100 {
				t.Errorf("%d, which has used 49 %%, has made room among others that have used 1 %%", i)
			}
		}
		if got := testutil.ToFloat64(s.metrics.evicted); got != smallest/4 || s.Len() != smallest {
			t.Errorf("%v evictions counted, want %d; %d counters", got, smallest/4, s.Len())
		}
	})
}

// A flood of fresh counters frees none that has used half of its limit.
func TestFloodDoesNotEvictHeavyCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 7, MaxBytes: 10 * MinBytes(7)})
		const full = 2000
		for i := range full {
			ask(s, key("full", i), perHour(10), 10)
			ask(s, key("half", i), perHour(10), 5)
		}
		for i := range 100_000 {
			ask(s, key("fresh", i), perHour(10), 1)
			if s.Bytes() > 10*MinBytes(7)+extraPages*MinBytes(7) {
				t.Fatalf("%d bytes", s.Bytes())
			}
		}
		for i := range full {
			if ask(s, key("full", i), perHour(10), 1).Allowed || ask(s, key("half", i), perHour(10), 0).Remaining != 5 {
				t.Errorf("the flood freed counters %d", i)
			}
		}
	})
}

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

// A denied group leaves what eviction goes by as it was.
func TestDeniedGroupLeavesTheUsage(t *testing.T) {
	for _, limit := range []algorithms.Limit{perHour(10), logPerHour(10)} {
		synctest.Test(t, func(t *testing.T) {
			s := newShard(t)
			k := key("a", 1)
			ask(s, k, limit, 2)
			before := s.usage(k)
			time.Sleep(time.Minute)
			s.Decide([]Group{{Takes: []Take{{Key: k, Limit: limit, Cost: 5}, {Key: key("b", 2), Limit: perHour(1), Cost: 2}}}})
			if after := s.usage(k); after != before || after.share != math.MaxUint16/5&^marks {
				t.Errorf("%v: %+v, was %+v", limit.Algorithm, after, before)
			}
		})
	}
}

// usage returns what eviction goes by.
func (s *Shard) usage(k ring.Key) usage {
	if e := s.partition(k).long[k]; e != nil {
		return e.usage
	}
	return s.partition(k).table.find(s.arena, k).usage()
}

// What many share has the same key on all nodes, and another for every limit.
func TestSharedKey(t *testing.T) {
	calendar, err := algorithms.NewCalendar("month", "Europe/Paris", 15)
	if err != nil {
		t.Fatal(err)
	}
	base := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour), Burst: 5}
	all := map[ring.Key]algorithms.Limit{}
	for _, change := range []func(l *algorithms.Limit){
		func(*algorithms.Limit) {},
		func(l *algorithms.Limit) { l.Algorithm = algorithms.GCRA },
		func(l *algorithms.Limit) { l.Limit++ },
		func(l *algorithms.Limit) { l.Window++ },
		func(l *algorithms.Limit) { l.Burst++ },
		func(l *algorithms.Limit) { l.Buckets++ },
		func(l *algorithms.Limit) { l.Calendar = calendar },
	} {
		l := base
		change(&l)
		all[sharedKey(&l)] = l
	}
	if len(all) != 7 {
		t.Errorf("%d keys for 7 limits", len(all))
	}
	if patient := (algorithms.Limit{Algorithm: algorithms.LeakyBucket, Limit: 10, Window: base.Window}); sharedKey(&patient) != sharedKey(new(patient.WaitAtMost(0))) {
		t.Error("a caller that cannot wait gets another counter")
	}
	if got := sharedKey(&base); got != (ring.Key{Hi: 0xb1f2d26761a85c55}) {
		t.Errorf("%x, which nodes of other versions do not find", got.Hi)
	}
}
