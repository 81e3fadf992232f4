package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

const hammerEvery = 100 * time.Microsecond // 10,000 in a second through each node

// hammer asks for the take through every node, so often, mostly twice at once, and returns
// how many groups were allowed.
func (c *testCluster) hammer(times int, take shard.Take) (allowed int64) {
	for ; times > 0; times -= 2 {
		n := min(times, 2)
		for _, node := range c.nodes {
			allowed += int64(node.askAtOnce(c.t.Context(), n, take))
		}
		pass(time.Duration(n) * hammerEvery)
	}
	return allowed
}

// askAtOnce asks for a take several times at the same time, and returns how many were allowed.
func (n *testNode) askAtOnce(ctx context.Context, times int, take shard.Take) (allowed int) {
	groups := make([]shard.Group, times)
	for i := range groups {
		groups[i].Takes = []shard.Take{take}
	}
	n.router.Decide(ctx, groups)
	for i := range groups {
		if groups[i].Allowed {
			allowed++
		}
	}
	return allowed
}

func (c *testCluster) remembered() (checks float64) {
	for _, n := range c.nodes {
		checks += testutil.ToFloat64(n.router.metrics.remembered)
	}
	return checks
}

func (c *testCluster) fromLeases() (checks float64) {
	for _, n := range c.nodes {
		checks += testutil.ToFloat64(n.router.metrics.lentChecks)
	}
	return checks
}

func allAlgorithms() (limits []algorithms.Limit) {
	for _, name := range algorithms.Names() {
		a, _ := algorithms.Parse(name)
		limits = append(limits, algorithms.Limit{Algorithm: a, Limit: 2000, Window: int64(time.Hour)})
	}
	return limits
}

// With leases of both kinds, one hot counter admits its limit, no more, and in the
// end no less, and its owner is asked for few of the checks that it denies.
func TestFloodOnOneHotCounter(t *testing.T) {
	for _, l := range allAlgorithms() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				owner := c.nodes[1]
				hot := shard.Take{Key: c.ownedBy(owner, 0), Limit: l, Cost: 1}
				most := int64(2000)
				if l.Algorithm.Drains() {
					most++ // flows out in 1.8 s
				}
				allowed := c.hammer(3000, hot)
				if allowed < 2000 || allowed > most {
					t.Errorf("%d allowed, want %d to %d", allowed, 2000, most)
				}
				if lends := algorithms.LentUntil(&l, &algorithms.Decision{ResetAt: 1}) > 0; lends != (c.fromLeases() > 100) {
					t.Errorf("%v checks were decided from leases", c.fromLeases())
				}
				before := owner.takes.Load()
				if again := c.hammer(3000, hot); again > most-2000 {
					t.Errorf("%d more allowed", again)
				}
				if asked := owner.takes.Load() - before; asked > 2*3000/20 {
					t.Errorf("the owner was asked %d times for 6000 checks", asked)
				}
			})
		})
	}
}

// While a flood is on, no check is denied that the owner would have allowed, except by tokens on lease:
// what was allowed and what is lent make up the limit at any time.
func TestAllowedAndLentAreTheLimit(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 2000, 1)
		var allowed int64
		for range 100 {
			allowed += c.hammer(20, hot)
			if used, out, lent := c.used(hot), c.nodes[1].out(t), c.lent(hot.Key); used+out != allowed+lent || used > allowed {
				t.Fatalf("%d used, %d out, %d allowed and %d lent", used, out, allowed, lent)
			}
		}
	})
}

// Where a token comes back every 10 ms, its owner is not asked much more often.
func TestFloodOfShortDenials(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := shard.Take{Key: c.ownedBy(c.nodes[1], 0), Cost: 1, Limit: algorithms.Limit{
			Algorithm: algorithms.TokenBucket, Limit: 100, Window: int64(time.Second),
		}}
		c.hammer(1000, hot)
		before := c.nodes[1].takes.Load()
		if allowed := c.hammer(3000, hot); allowed != 30 {
			t.Errorf("%d allowed in 300 ms, want 30", allowed)
		}
		if asked := c.nodes[1].takes.Load() - before; asked > 2*4*30 { // as both of two ask
			t.Errorf("the owner was asked %d times for 6000 checks", asked)
		}
	})
}

// A batch is spared the way as well.
func TestFloodInBatches(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot, cold := take(c.ownedBy(c.nodes[1], 0), 2000, 1), take(c.ownedBy(c.nodes[1], 1), 1<<30, 1)
		allowed := 0
		batch := func(n *testNode) {
			groups := make([]shard.Group, 20)
			for i := range groups {
				groups[i].Takes = []shard.Take{hot}
			}
			groups[7].Takes[0], groups[8].Takes[0] = cold, cold
			n.router.Decide(t.Context(), groups)
			for i := range groups {
				if i != 7 && i != 8 && groups[i].Allowed {
					allowed++
				}
			}
			if !groups[7].Allowed || groups[7].Takes[0].Source != shard.Owner && groups[7].Takes[0].Source != shard.Lent {
				t.Fatalf("with the hot ones: %+v", groups[7])
			}
		}
		for range 200 {
			for _, n := range c.nodes {
				batch(n)
			}
			pass(hammerEvery)
		}
		if allowed != 2000 {
			t.Errorf("%d allowed, want 2000", allowed)
		}
		before := c.nodes[1].takes.Load()
		for range 200 {
			batch(c.nodes[0])
			pass(hammerEvery)
		}
		if asked := c.nodes[1].takes.Load() - before; asked > 200/10 {
			t.Errorf("the owner was asked %d times for 4000 checks", asked)
		}
	})
}
