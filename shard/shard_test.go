package shard

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

func newShard(t testing.TB) *Shard { return newShardOf(t, Config{Partitions: 1021, MaxBytes: 1 << 30}) }

// newSmallShard returns a Shard that has memory for smallest counters.
func newSmallShard(t testing.TB) *Shard {
	return newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1)})
}

const smallest = (pageSlots - spareSlots) * fullNum / fullDen

func newShardOf(t testing.TB, c Config) *Shard {
	c.Metrics = prometheus.NewRegistry()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func perHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: limit, Window: int64(time.Hour)}
}

func logPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindowLog, Limit: limit, Window: int64(time.Hour)}
}

func bucketsPerHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindowBuckets, Limit: limit, Window: int64(time.Hour)}
}

func key(name string, i int) ring.Key { return ring.Hasher{}.Key(fmt.Appendf(nil, "%s/%d", name, i)) }

// ask decides one group of one take.
func ask(s *Shard, k ring.Key, l algorithms.Limit, cost int64) algorithms.Decision {
	g := []Group{{Takes: []Take{{Key: k, Limit: l, Cost: cost}}}}
	s.Decide(g)
	return g[0].Takes[0].Decision
}

func TestNewRefuses(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   string
	}{
		{Config{MaxBytes: 1}, "shard: partitions: 0 is not at least 1"},
		{Config{Partitions: 3, MaxBytes: 3*4096 - 1}, "shard: max bytes: 12287 is not at least 12288"},
		{Config{Partitions: 1, MaxBytes: 1 << 62}, "shard: max bytes: 4611686018427387904 is not at most 8796093020160"},
		{Config{Partitions: 1, MaxBytes: 4096, MaxLongBytes: -1}, "shard: max long bytes: -1 is not at least 0"},
	} {
		if _, err := New(tc.config); fmt.Sprint(err) != tc.want {
			t.Errorf("%+v: %v, want %s", tc.config, err, tc.want)
		}
	}
}

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

// Tables that grow, shrink and are swept lose nobody.
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

func TestPeekKeepsNothing(t *testing.T) {
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
		limits := []algorithms.Limit{perHour(20), logPerHour(20), bucketsPerHour(20)}
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
			t.Errorf("to nobody: %+v, %d counters", d, s.Len())
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
			t.Errorf("somebody has taken it: %+v", d)
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
			t.Errorf("somebody else's counter was reset: %+v", d)
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
			t.Errorf("a denied group has evicted somebody: allowed %v, %d counters", g[0].Allowed, s.Len())
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
func TestWhatDoesNotFitIsSharedByLimit(t *testing.T) {
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

// A group that just fits costs nobody anything.
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
func TestEvictionPrefersWhatIsOver(t *testing.T) {
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

// Time never goes back, whoever read the clock first.
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
		s.partitions[1].latest = s.now() + int64(time.Minute) // somebody read the clock later
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

func TestSweepDropsWhatIsOver(t *testing.T) {
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
				t.Errorf("%d, which has used 49 %%, has made room beside others that have used 1 %%", i)
			}
		}
		if got := testutil.ToFloat64(s.metrics.evicted); got != smallest/4 || s.Len() != smallest {
			t.Errorf("%v evictions counted, want %d; %d counters", got, smallest/4, s.Len())
		}
	})
}

// A flood of fresh counters frees none that has used half of its limit.
func TestFloodSparesTheHeavy(t *testing.T) {
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
