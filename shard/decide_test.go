package shard

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Two requests never both take the last slot.
func TestConcurrentTakesAreExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no window's edge comes in between
		s := newShard(t)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 1000 {
					if ask(s, key("one", 0), perHour(1234), 1).Allowed {
						allowed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		if got := allowed.Load(); got != 1234 {
			t.Errorf("%d of 8000 allowed, want 1234", got)
		}
	})
}

// Tables that grow, shrink and are swept lose no counter.
func TestConcurrentTakesWhileTablesMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no window's edge comes in between
		s := newShardOf(t, Config{Partitions: 3, MaxBytes: 4 << 20})
		const keys, limit, workers = 10_000, 3, 5
		second := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 1, Window: int64(time.Second)}
		for i := range 20_000 {
			ask(s, key("over", i), second, 1)
		}
		time.Sleep(time.Second)
		var allowed [keys]atomic.Int32
		var wg sync.WaitGroup
		for w := range workers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(w), 0))
				groups := make([]Group, 40)
				for _, first := range r.Perm(keys / len(groups)) {
					for i := range groups {
						groups[i].Takes = []Take{{Key: key("k", first*len(groups)+i), Limit: perHour(limit), Cost: 1}}
					}
					s.Decide(groups)
					for i, g := range groups {
						if g.Allowed {
							allowed[first*len(groups)+i].Add(1)
						}
					}
				}
			})
		}
		wg.Go(func() {
			for i := range 30 {
				s.sweep(&s.partitions[i%3])
				s.arena.trim()
			}
		})
		wg.Wait()
		for i := range allowed {
			if got := allowed[i].Load(); got != limit {
				t.Fatalf("key %d: %d of %d allowed, want %d", i, got, workers, limit)
			}
		}
		for i := range s.partitions {
			s.sweep(&s.partitions[i])
		}
		if s.Len() != keys {
			t.Errorf("%d counters, want %d", s.Len(), keys)
		}
	})
}

func TestGroupIsCountedWholeOrNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		group := func(cost int64, peek bool) Group {
			return Group{Peek: peek, Takes: []Take{
				{Key: key("a", 1), Limit: perHour(10), Cost: cost},
				{Key: key("b", 2), Limit: perHour(3), Cost: cost},
				{Key: key("c", 3), Limit: perHour(10), Cost: cost},
			}}
		}
		for i, tc := range []struct {
			cost      int64
			peek      bool
			allowed   bool
			remaining [3]int64
		}{
			{2, true, true, [3]int64{8, 1, 8}},
			{2, false, true, [3]int64{8, 1, 8}},
			{2, false, false, [3]int64{8, 1, 8}},
			{2, true, false, [3]int64{8, 1, 8}},
			{1, false, true, [3]int64{7, 0, 7}},
			{0, false, true, [3]int64{7, 0, 7}},
		} {
			g := []Group{group(tc.cost, tc.peek)}
			s.Decide(g)
			var remaining [3]int64
			for j, take := range g[0].Takes {
				remaining[j] = take.Decision.Remaining
				if take.Source != Owner {
					t.Errorf("step %d: source %d", i, take.Source)
				}
			}
			if g[0].Allowed != tc.allowed || remaining != tc.remaining {
				t.Errorf("step %d %+v: allowed %v, remaining %v", i, tc, g[0].Allowed, remaining)
			}
		}
		if s.Len() != 3 {
			t.Errorf("%d counters, want 3", s.Len())
		}
	})
}

func TestOneCounterTwiceInAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		take := Take{Key: key("a", 1), Limit: perHour(3), Cost: 2}
		g := []Group{{Takes: []Take{take, take}}}
		s.Decide(g)
		if g[0].Allowed || s.Len() != 0 {
			t.Errorf("2 + 2 of 3: allowed %v, %d counters", g[0].Allowed, s.Len())
		}
		if d := ask(s, take.Key, take.Limit, 3); !d.Allowed {
			t.Errorf("the denied group consumed something: %+v", d)
		}
	})
}

func TestPeekStoresNothing(t *testing.T) {
	s := newShard(t)
	g := []Group{{Peek: true, Takes: []Take{{Key: key("a", 1), Limit: perHour(3), Cost: 1}}}}
	s.Decide(g)
	if !g[0].Allowed || s.Len() != 0 {
		t.Errorf("allowed %v, %d counters", g[0].Allowed, s.Len())
	}
}

func TestReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		g := []Group{{Takes: []Take{{Key: key("a", 1), Limit: perHour(3), Cost: 3}}}}
		s.Decide(g)
		s.Return(g[0].Takes)
		if d := ask(s, key("a", 1), perHour(3), 3); !d.Allowed {
			t.Errorf("after 3 were returned: %+v", d)
		}
	})
}

// A dumb twin: one map, one lock for everything, one take after the other.
func TestDecideAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New(Config{Partitions: 7, MaxBytes: MinBytes(7), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		limits := []algorithms.Limit{perHour(20), logPerHour(20), slidingBucketsPerHour(20)}
		limitOf := map[ring.Key]algorithms.Limit{}
		for i := range 10 {
			limitOf[key("k", i)] = limits[i%len(limits)]
		}
		twin := map[ring.Key]int64{}
		for range rapid.IntRange(1, 30).Draw(t, "groups") {
			g := Group{Peek: rapid.Bool().Draw(t, "peek"), Reset: rapid.IntRange(0, 9).Draw(t, "reset") == 0}
			for range rapid.IntRange(0, 12).Draw(t, "takes") {
				i := rapid.IntRange(0, 9).Draw(t, "key")
				g.Takes = append(g.Takes, Take{
					Key:    key("k", i),
					Limit:  limits[i%len(limits)],
					Cost:   rapid.Int64Range(-4, 8).Draw(t, "cost"),
					Shadow: rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
				})
			}
			want := twinDecide(twin, g)
			groups := []Group{g}
			s.Decide(groups)
			if groups[0].Allowed != want {
				t.Fatalf("%+v: allowed %v, the twin says %v", g, groups[0].Allowed, want)
			}
			for k, used := range twin {
				if left := ask(s, k, limitOf[k], 0).Remaining; left != 20-used {
					t.Fatalf("%v: %d remaining, the twin says %d", k, left, 20-used)
				}
			}
			var bytes int64
			for i := range s.partitions {
				for _, e := range s.partitions[i].long {
					bytes += int64(longOverhead + e.counter.Bytes())
				}
			}
			if got := s.longBytes.Load(); got != bytes {
				t.Fatalf("%d bytes counted, there are %d", got, bytes)
			}
			if s.Len() != len(twin) {
				t.Fatalf("%d counters, the twin has %d", s.Len(), len(twin))
			}
		}
	})
}

func twinDecide(used map[ring.Key]int64, g Group) bool {
	if g.Reset {
		for _, take := range g.Takes {
			delete(used, take.Key)
		}
		return true
	}
	tried := maps.Clone(used)
	allowed := true
	var refunds []Take
	for _, take := range g.Takes {
		before, found := tried[take.Key]
		switch {
		case take.Cost > 0 && before+take.Cost > take.Limit.Limit:
			allowed = allowed && take.Shadow
		case take.Cost < 0 && take.Limit.Algorithm.Long():
			refunds = append(refunds, take) // counts once the group stays
		case take.Cost > 0 || take.Cost < 0 && found:
			tried[take.Key] = max(0, before+take.Cost)
		}
	}
	if allowed && !g.Peek {
		for _, take := range refunds {
			if before, found := tried[take.Key]; found {
				tried[take.Key] = max(0, before+take.Cost)
			}
		}
		maps.Copy(used, tried)
	}
	return allowed
}

func TestShadowTakesDenyNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		hard := Take{Key: key("a", 1), Limit: perHour(10), Cost: 4}
		soft := Take{Key: key("b", 2), Limit: perHour(5), Cost: 4, Shadow: true}
		for i, tc := range []struct {
			group                 []Take
			allowed, room         bool // of the group, of its shadow take
			remaining, ofShadowed int64
		}{
			{[]Take{hard, soft}, true, true, 6, 1},
			{[]Take{hard, soft}, true, false, 2, 1},
			{[]Take{hard, soft}, false, false, 2, 1},
			{[]Take{hard, {Key: key("c", 3), Limit: perHour(5), Cost: 1, Shadow: true}}, false, true, 2, 5}, // nothing is taken of it
		} {
			g := []Group{{Takes: tc.group}}
			s.Decide(g)
			a, b := g[0].Takes[0].Decision, g[0].Takes[1].Decision
			if g[0].Allowed != tc.allowed || b.Allowed != tc.room || a.Remaining != tc.remaining || b.Remaining != tc.ofShadowed {
				t.Errorf("step %d: %+v", i, g[0])
			}
		}
		g := []Group{{Takes: []Take{{Key: soft.Key, Limit: soft.Limit, Cost: 4, Shadow: true}}}}
		if s.Decide(g); !g[0].Allowed || g[0].Takes[0].Decision.Allowed || s.Len() != 2 {
			t.Errorf("alone: %+v, %d counters", g[0], s.Len())
		}
	})
}

func TestRefunds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		k := key("a", 1)
		if d := ask(s, k, perHour(10), -3); !d.Allowed || d.Remaining != 10 || s.Len() != 0 {
			t.Errorf("without a counter: %+v, %d counters", d, s.Len())
		}
		ask(s, k, perHour(10), 8)
		if d := ask(s, k, perHour(10), -3); d.Remaining != 5 {
			t.Errorf("3 of 8: %+v", d)
		}
		if e := s.partition(k).table.find(s.arena, k); e.share != heavy {
			t.Errorf("eviction goes by a share of %d/65535", e.share)
		}
		if d := ask(s, k, perHour(10), -99); d.Remaining != 10 {
			t.Errorf("more than was used: %+v", d)
		}
		if d := ask(s, k, perHour(10), 11); d.Allowed {
			t.Errorf("a refund has made room above the limit: %+v", d)
		}
	})
}

// What a group has given back on this node is taken again if the group is denied on
// another, but never above the limit.
func TestReturnOfARefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		k := key("a", 1)
		refund := func() []Take {
			g := []Group{{Takes: []Take{{Key: k, Limit: perHour(10), Cost: -3}}}}
			s.Decide(g)
			return g[0].Takes
		}
		s.Return(refund())
		if s.Len() != 0 {
			t.Errorf("%d counters, want 0", s.Len())
		}
		ask(s, k, perHour(10), 8)
		s.Return(refund())
		if d := ask(s, k, perHour(10), 0); d.Remaining != 2 {
			t.Errorf("after it was undone: %+v", d)
		}
		r := refund()
		ask(s, k, perHour(10), 5)
		s.Return(r)
		if d := ask(s, k, perHour(10), 0); d.Remaining != 0 {
			t.Errorf("another take has used it: %+v", d)
		}
	})
}

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		a, b := key("a", 1), key("b", 2)
		ask(s, a, perHour(3), 3)
		ask(s, b, perHour(5), 4)
		g := []Group{{Reset: true, Takes: []Take{{Key: a, Limit: perHour(3), Cost: 99}, {Key: key("c", 3), Limit: perHour(7), Cost: 1}}}}
		s.Decide(g)
		x, y := g[0].Takes[0], g[0].Takes[1]
		if !g[0].Allowed || x.Source != Owner || x.Decision.Remaining != 3 || y.Decision.Remaining != 7 || s.Len() != 1 {
			t.Errorf("%+v, %d counters", g[0], s.Len())
		}
		if d := ask(s, b, perHour(5), 2); d.Allowed {
			t.Errorf("another counter was reset: %+v", d)
		}
	})
}

// A counter above its limit, which was lowered, has used all of it, not more.
func TestDebtIsAFullCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		k := key("a", 1)
		ask(s, k, perHour(10), 10)
		ask(s, k, perHour(4), -1)
		if e := s.partition(k).table.find(s.arena, k); e.share != whole {
			t.Errorf("eviction goes by a share of %d/65535", e.share)
		}
		if d := ask(s, k, perHour(4), 1); d.Allowed || d.Remaining != 0 {
			t.Errorf("9 used of 4: %+v", d)
		}
	})
}

// Time never goes back in a partition, in any order of reading the clock.
func TestTimeNeverGoesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		later := s.now() + int64(time.Minute)
		s.partitions[0].latest = later
		for i := range 2 {
			if d := ask(s, key("a", i), perHour(10), 1); d.At != later {
				t.Errorf("take %d is of %d, want %d", i, d.At, later)
			}
		}
	})
}

// All partitions of a group have seen the instant at which it was decided.
func TestGroupMovesTheClockOfAllItsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
		s.partitions[1].latest = s.now() + int64(time.Minute) // another goroutine read the clock later
		a, b := Take{Limit: perHour(10), Cost: 1}, Take{Limit: perHour(10), Cost: 1}
		b.Key.Lo = 1 << 31 // the second half of the keys
		g := []Group{{Takes: []Take{a, b}}}
		s.Decide(g)
		if d := ask(s, a.Key, a.Limit, 1); d.At != g[0].Takes[0].Decision.At {
			t.Errorf("time went back from %d to %d", g[0].Takes[0].Decision.At, d.At)
		}
	})
}

// A bucket may hold more than its limit per window, and eviction knows.
func TestBurstAboveTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSmallShard(t)
		bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour), Burst: 20}
		for i := range smallest - 1 {
			ask(s, key("light", i), bucket, 1)
		}
		if d := ask(s, key("full", 0), bucket, 20); !d.Allowed || d.Remaining != 0 {
			t.Errorf("20 at once: %+v", d)
		}
		for i := range 1000 { // each takes the place of one that has used less
			if d := ask(s, key("fresh", i), bucket, 1); d.Remaining != 19 {
				t.Errorf("fresh %d: %+v", i, d)
			}
		}
		if d := ask(s, key("full", 0), bucket, 1); d.Allowed || d.RetryAt-d.At != int64(6*time.Minute) {
			t.Errorf("the flood freed it, or it says otherwise when a token comes: %+v", d)
		}
	})
}

func TestDecideAllocatesNothing(t *testing.T) {
	s := newShard(t)
	one := []Group{{Takes: []Take{{Key: key("a", 0), Limit: perHour(5), Cost: 1}}}}
	three := []Group{{Takes: []Take{
		{Key: key("a", 1), Limit: perHour(1 << 30), Cost: 1},
		{Key: key("a", 2), Limit: perHour(1 << 30), Cost: 1},
		{Key: key("a", 3), Limit: perHour(1 << 30), Cost: 1},
	}}}
	for name, groups := range map[string][]Group{"one": one, "three": three} {
		if n := testing.AllocsPerRun(1000, func() { s.Decide(groups) }); n != 0 {
			t.Errorf("%s: %v allocations per decision, want 0", name, n)
		}
	}
}
