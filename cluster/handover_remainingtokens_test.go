package cluster

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// stayingCaller stays with one node, and asks again as soon as it has its answer.
type stayingCaller struct {
	node *ownershipNode
	take shard.Take
	pace time.Duration // until it asks again

	asked, lent int
	rise        int64 // of what remains, from one answer to the next, at most
}

func (c *stayingCaller) run(stop <-chan struct{}) {
	last := int64(algorithms.Never)
	for {
		select {
		case <-stop:
			return
		case <-time.After(c.pace):
		}
		g := []shard.Group{{Takes: []shard.Take{c.take}}}
		c.node.router.Decide(context.Background(), g)
		t := &g[0].Takes[0]
		if !g[0].Allowed || t.Source == shard.Undecided || t.Source == shard.Provisional {
			continue
		}
		c.asked++
		if t.Source == shard.Lent {
			c.lent++
		}
		c.rise, last = max(c.rise, t.Decision.Remaining-last), t.Decision.Remaining
	}
}

// What remains does not rise for callers that stay with a node while the counters, of which tokens are lent, go to other nodes.
func TestRemainingInAHandover(t *testing.T) {
	all := []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.GCRA}
	if testform.RaceEnabled {
		all = all[1:2]
	}
	for _, a := range all {
		t.Run(a.String(), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c")
				c.settled()
				limit := algorithms.Limit{Algorithm: a, Limit: 200_000, Window: int64(365 * 24 * time.Hour)}
				stop, all := make(chan struct{}), sync.WaitGroup{}
				var callers []*stayingCaller
				for _, key := range c.ownedBy("a", 4) {
					for _, id := range []string{"b", "c"} {
						for _, pace := range []time.Duration{100 * time.Microsecond, 100 * time.Microsecond, 100 * time.Microsecond, 20 * time.Millisecond} { // the last does not make it hot
							one := &stayingCaller{node: c.alive[id], take: shard.Take{Key: key, Cost: 1, Limit: limit}, pace: pace}
							callers = append(callers, one)
							all.Go(func() { one.run(stop) })
						}
					}
				}
				for _, n := range c.alive {
					n.perTake.Store(int64(20 * time.Microsecond)) // so that several ask at once
				}
				pass(100 * time.Millisecond)
				c.leave("a")
				c.settled()
				pass(200 * time.Millisecond)
				close(stop)
				all.Wait()
				asked, lent, rise := 0, 0, int64(0)
				for _, one := range callers {
					asked, lent, rise = asked+one.asked, lent+one.lent, max(rise, one.rise)
				}
				t.Logf("%d answers, %d from lent tokens; what remains rose by %d at most", asked, lent, rise)
				if rise > 0 || lent == 0 {
					t.Errorf("what remains rose by %d; %d answers from lent tokens", rise, lent)
				}
			})
		})
	}
}

// ownedBy returns keys of counters that a node owns.
func (c *ownershipCluster) ownedBy(id string, n int) (keys []ring.Key) {
	v := c.alive[id].router.View()
	for i := 0; len(keys) < n; i++ {
		if k := ownershipKey(i); v.Members[v.Ring.Owner(k.Partition(uint32(ownershipRing.Partitions)))].ID == id {
			keys = append(keys, k)
		}
	}
	return keys
}
