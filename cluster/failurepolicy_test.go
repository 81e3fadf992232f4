package cluster

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// withoutC runs a test in a bubble with a cluster of three of which c is dead.
func withoutC(t *testing.T, f func(t *testing.T, c *testCluster)) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(c.nodes[2])
		synctest.Wait()
		f(t, c)
	})
}

func (c *testCluster) take(owner, limit, cost int64, p shard.Policy) shard.Take {
	t := take(c.ownedBy(c.nodes[owner], 0), limit, cost)
	t.OnFailure = p
	return t
}

// used returns how much was taken from a counter on the node that owns it.
func (c *testCluster) used(t shard.Take) int64 {
	synctest.Wait() // no caller waits for a give-back
	t.Cost = 0
	owner := c.view.Ring.Owner(t.Key.Partition(c.view.Ring.Partitions()))
	groups := []shard.Group{{Takes: []shard.Take{t}}}
	c.nodes[owner].shard.Decide(groups)
	return t.Limit.Capacity() - groups[0].Takes[0].Decision.Remaining
}

func TestFailClosed(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		closed := c.take(2, 10, 1, shard.FailClosed)
		shadow := closed
		shadow.Shadow = true
		open := c.take(2, 10, 1, shard.FailOpen)
		here, there := c.take(0, 10, 1, shard.FailClosed), c.take(1, 10, 1, shard.FailClosed)
		for _, tc := range []struct {
			name    string
			takes   []shard.Take
			allowed bool
		}{
			{"alone", []shard.Take{closed}, false},
			{"a shadow", []shard.Take{shadow}, true},
			{"open", []shard.Take{open}, true},
			{"open and closed", []shard.Take{open, closed}, false},
			{"with answered ones", []shard.Take{here, there, closed}, false},
			{"answered", []shard.Take{here, there, open}, true},
		} {
			groups := []shard.Group{{Takes: tc.takes}, {}} // a batch walks the same way
			c.nodes[0].router.Decide(t.Context(), groups)
			if groups[0].Allowed != tc.allowed {
				t.Errorf("%s, in a batch: allowed %v", tc.name, groups[0].Allowed)
			}
			if tc.allowed {
				continue // to ask twice counts twice
			}
			g, took := c.nodes[0].ask(t.Context(), tc.takes...)
			if last := g.Takes[len(g.Takes)-1]; g.Allowed || took != 0 || last.Source != shard.Unanswered || last.Decision != (algorithms.Decision{}) {
				t.Errorf("%s: %+v after %v", tc.name, g, took)
			}
		}
		if a, b := c.used(here), c.used(there); a != 1 || b != 1 {
			t.Errorf("%d and %d taken, want what the one allowed group has", a, b)
		}
	})
}

// 10 among three is 4 each, and a burst of 6 is 2.
func TestFailLocalHoldsThisNodeToItsShare(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		window := c.take(2, 10, 1, shard.FailLocal)
		bucket := window
		bucket.Limit.Algorithm, bucket.Limit.Burst, bucket.Key = algorithms.TokenBucket, 6, c.ownedBy(c.nodes[2], 1)
		for _, tc := range []struct {
			take  shard.Take
			share int64
		}{{window, 4}, {bucket, 2}} {
			for _, n := range c.nodes[:2] {
				for i := range tc.share + 1 {
					g, _ := n.ask(t.Context(), tc.take)
					if got := g.Takes[0]; got.Source != shard.Local || g.Allowed != (i < tc.share) || got.Decision.Remaining != max(0, tc.share-i-1) || got.Limit != tc.take.Limit {
						t.Errorf("%s, take %d: %+v", n.id, i, g)
					}
				}
			}
		}
		c.serve(c.nodes[2])
		time.Sleep(2 * probeEvery)
		if g, _ := c.nodes[0].ask(t.Context(), window); g.Takes[0].Source != shard.Owner || g.Takes[0].Decision.Remaining != 9 {
			t.Errorf("the owner is back: %+v", g)
		}
	})
}

// The share is counted apart from what the owner counts in the same tables.
func TestShareIsNotTheOwnersCounter(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		mine := c.take(0, 10, 3, shard.FailLocal)
		c.nodes[0].ask(t.Context(), mine)
		mine.Source = shard.Unanswered
		g := shard.Group{Takes: []shard.Take{mine}}
		c.nodes[0].router.applyPolicies(c.nodes[0].router.table.Load(), &g)
		if !g.Allowed || g.Takes[0].Source != shard.Local || g.Takes[0].Decision.Remaining != 1 || c.used(mine) != 3 {
			t.Errorf("%+v, %d used at the owner", g, c.used(mine))
		}
	})
}

func TestLocalTakesAreOneStepOfTheirGroup(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		two := c.take(2, 30, 2, shard.FailLocal) // 10 here
		one := c.take(2, 3, 2, shard.FailLocal)  // 1 here
		one.Key = c.ownedBy(c.nodes[2], 1)
		here, there := c.take(0, 10, 2, shard.FailLocal), c.take(1, 10, 2, shard.FailLocal)
		look := func(take shard.Take) int64 {
			take.Cost = 0
			g, _ := n.ask(t.Context(), take)
			return g.Takes[0].Decision.Remaining
		}
		g, _ := n.ask(t.Context(), here, there, two, one)
		if g.Allowed || look(two) != 10 || c.used(here) != 0 || c.used(there) != 0 {
			t.Errorf("denied by a share: %+v, %d, %d and %d used", g, 10-look(two), c.used(here), c.used(there))
		}
		if r := g.Takes[0].Decision.Remaining + g.Takes[1].Decision.Remaining; r != 20 {
			t.Errorf("the answers tell of tokens that were given back: %+v", g)
		}
		full := c.take(1, 1, 2, shard.FailLocal)
		full.Key = c.ownedBy(c.nodes[1], 1)
		if g, _ = n.ask(t.Context(), here, full, two); g.Allowed || look(two) != 10 || c.used(here) != 0 || g.Takes[2].Source != shard.Local {
			t.Errorf("denied by an owner: %+v, %d left", g, look(two))
		}
		one.Shadow = true
		if g, _ = n.ask(t.Context(), here, there, two, one); !g.Allowed || look(two) != 8 || c.used(here) != 2 || c.used(there) != 2 {
			t.Errorf("allowed: %+v", g)
		}
		groups := []shard.Group{{Peek: true, Takes: []shard.Take{here, two}}}
		if n.router.Decide(t.Context(), groups); !groups[0].Allowed || look(two) != 8 {
			t.Errorf("a peek has taken something: %+v", groups)
		}
		groups[0] = shard.Group{Reset: true, Takes: []shard.Take{here, two}}
		if n.router.Decide(t.Context(), groups); !groups[0].Allowed || look(two) != 10 || c.used(here) != 0 {
			t.Errorf("reset: %+v", groups)
		}
	})
}

// What a shadow take was denied is not given back.
func TestOnlyCountedTakesAreGivenBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		there, shadow, full := c.take(1, 10, 4, 0), c.take(1, 10, 4, 0), c.take(2, 3, 4, 0)
		shadow.Key = c.ownedBy(c.nodes[1], 1)
		for range 2 { // 8 of 10, and no room for 4 more
			c.nodes[0].ask(t.Context(), shadow)
		}
		if g, _ := c.nodes[0].ask(t.Context(), c.take(0, 10, 1, 0), shadow, there); g.Allowed || c.used(shadow) != 8 || c.used(there) != 0 {
			t.Errorf("its owner has denied the part: %+v, %d and %d used", g, c.used(shadow), c.used(there))
		}
		c.nodes[0].ask(t.Context(), there)
		if g, _ := c.nodes[0].ask(t.Context(), c.take(0, 10, 1, 0), shadow, there); g.Allowed || c.used(there) != 4 {
			t.Errorf("its owner has counted nothing of the part: %+v, %d used", g, c.used(there))
		}
		there.Cost = -4
		c.nodes[0].ask(t.Context(), there)
		there.Cost = 4
		shadow.Shadow = true
		g, _ := c.nodes[0].ask(t.Context(), there, shadow, full)
		if g.Allowed || c.used(there) != 0 || c.used(shadow) != 8 || g.Takes[0].Decision.Remaining != 10 || g.Takes[1].Decision.Remaining != 2 {
			t.Errorf("%+v: %d and %d used", g, c.used(there), c.used(shadow))
		}
	})
}

// A refund of a group that is denied elsewhere did not happen.
func TestRefundOfADeniedGroup(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		there, closed := c.take(1, 10, 6, 0), c.take(2, 10, -2, shard.FailClosed)
		c.nodes[0].ask(t.Context(), there)
		there.Cost = -2
		g, _ := c.nodes[0].ask(t.Context(), there, closed)
		if g.Allowed || c.used(there) != 6 || g.Takes[0].Decision.Remaining != 4 {
			t.Errorf("%+v: %d used", g, c.used(there))
		}
		there.Cost = -8
		if g, _ := c.nodes[0].ask(t.Context(), there, closed); g.Allowed || c.used(there) > 6 {
			t.Errorf("more than was used: %+v: %d used", g, c.used(there))
		}
	})
}

func TestPoliciesWithoutAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shard.New(shard.Config{Partitions: 64, MaxBytes: shard.MinBytes(64), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		r := NewRouter(RouterConfig{Self: "a", DenialLeases: NewGivenDenialLeases(true, true), Local: s, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		for _, tc := range []struct {
			policy  shard.Policy
			cost    int64
			allowed bool
			source  shard.Source
		}{
			{shard.FailOpen, 11, true, shard.Unanswered},
			{shard.FailClosed, 1, false, shard.Unanswered},
			{shard.FailLocal, 10, true, shard.Local}, // no member is known to share it with
			{shard.FailLocal, 1, false, shard.Local},
		} {
			take := take(ring.Key{}, 10, tc.cost)
			take.OnFailure = tc.policy
			groups := []shard.Group{{Takes: []shard.Take{take}}}
			r.Decide(t.Context(), groups)
			if groups[0].Allowed != tc.allowed || groups[0].Takes[0].Source != tc.source {
				t.Errorf("%+v: %+v", tc, groups[0])
			}
		}
	})
}

// What was booked ahead and is given back leaves no caller waiting, nor more room than
// there is.
func TestBookedAheadIsGivenBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		ahead, full := c.take(1, 60, 8, 0), c.take(2, 1, 2, 0)
		ahead.Limit = algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 60, Window: int64(time.Hour), Burst: 10, MaxDelay: int64(time.Hour)}
		c.nodes[0].ask(t.Context(), ahead)
		g, _ := c.nodes[0].ask(t.Context(), ahead)
		if d := g.Takes[0].Decision; !d.Allowed || d.Delay != int64(6*time.Minute) {
			t.Fatalf("8 and 8 of 10: %+v", d)
		}
		g, _ = c.nodes[0].ask(t.Context(), ahead, full)
		if d := g.Takes[0].Decision; g.Allowed || d.Delay != 0 || d.Remaining != 0 {
			t.Errorf("denied: %+v", d)
		}
		synctest.Wait()
		if g, _ = c.nodes[0].ask(t.Context(), ahead); g.Takes[0].Decision.Delay != int64(14*time.Minute) {
			t.Errorf("8 and 8 and 8 of 10: %+v", g.Takes[0].Decision)
		}
	})
}

// A look takes nothing anywhere, and so gives nothing back.
func TestPeekAcrossNodes(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		here, there, full := c.take(0, 10, 4, 0), c.take(1, 10, 4, 0), c.take(2, 3, 4, 0)
		c.nodes[0].ask(t.Context(), here, there)
		for _, takes := range [][]shard.Take{{here, there}, {here, there, full}} {
			groups := []shard.Group{{Peek: true, Takes: takes}}
			c.nodes[0].router.Decide(t.Context(), groups)
			if groups[0].Allowed != (len(takes) == 2) || c.used(here) != 4 || c.used(there) != 4 {
				t.Errorf("%+v: %d and %d used", groups[0], c.used(here), c.used(there))
			}
		}
	})
}

// If the last room goes between the look and the take, the other bucket is as if nothing had been taken
// from it, although it drains all the time and others have taken from it since.
func TestBucketsAreUndoneExactly(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		b, other := c.nodes[1], c.nodes[2]
		fast := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: int64(time.Second), Burst: 20}
		slow := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 5, Window: int64(time.Hour)}
		keep, lose := c.ownedBy(b, 0), c.ownedBy(other, 0)
		take := func(n *testNode, k ring.Key, l algorithms.Limit, cost int64) algorithms.Decision {
			g := []shard.Group{{Takes: []shard.Take{{Key: k, Limit: l, Cost: cost}}}}
			n.shard.Decide(g)
			return g[0].Takes[0].Decision
		}
		other.perTake.Store(int64(2 * time.Millisecond)) // looks until 2 ms, takes at 4 ms
		go func() {
			time.Sleep(3 * time.Millisecond)
			take(other, lose, slow, 5)
			take(b, keep, fast, 10)
		}()
		g, took := c.nodes[0].ask(t.Context(), shard.Take{Key: keep, Limit: fast, Cost: 5}, shard.Take{Key: lose, Limit: slow, Cost: 1})
		if g.Allowed || took != 4*time.Millisecond {
			t.Fatalf("%+v after %v", g, took)
		}
		synctest.Wait()
		if used := fast.Burst - take(b, keep, fast, 0).Remaining; used != 9 {
			t.Errorf("%d used, want the 9 that are left of the others' 10", used)
		}
	})
}

// A check denied elsewhere takes nothing out of a bucket, not even for a moment: it would not get back what
// has flowed out meanwhile.
func TestBucketsAreTakenLast(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		bucket := func(n *testNode) shard.Take {
			limit := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour)}
			return shard.Take{Key: c.ownedBy(n, 0), Limit: limit, Cost: 2}
		}
		b, other := c.nodes[1], c.nodes[2]
		closed := take(c.ownedBy(other, 1), 0, 1)
		for range 10 {
			g, _ := c.nodes[0].ask(t.Context(), bucket(b), closed)
			if g.Allowed || g.Takes[0].Decision.Remaining != 10 || g.Takes[1].Decision.Allowed {
				t.Fatalf("%+v", g)
			}
		}
		if n := b.takes.Load(); n != 0 {
			t.Errorf("denied groups have taken from the bucket %d times", n)
		}
		for i, second := range []shard.Take{take(c.ownedBy(other, 2), 5, 1), bucket(other)} {
			g, _ := c.nodes[0].ask(t.Context(), bucket(b), second)
			if !g.Allowed || g.Takes[0].Decision.Remaining != int64(8-2*i) || g.Takes[0].Source != shard.Owner || g.Takes[1].Source != shard.Owner {
				t.Errorf("%+v", g)
			}
		}
		if n := b.takes.Load(); n != 2 {
			t.Errorf("two allowed groups have taken from the bucket %d times", n)
		}
		look := []shard.Group{{Peek: true, Takes: []shard.Take{bucket(b), take(c.ownedBy(other, 2), 5, 1)}}}
		c.nodes[0].router.Decide(t.Context(), look)
		if n := b.takes.Load(); n != 2 || !look[0].Allowed {
			t.Errorf("a look has taken from the bucket: %+v", look[0])
		}
	})
}
