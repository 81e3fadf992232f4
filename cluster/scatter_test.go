package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

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
