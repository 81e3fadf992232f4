package cluster

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/shard"
)

// open returns how many connections a node serves.
func (n *testNode) open() int {
	n.conns.mu.Lock()
	defer n.conns.mu.Unlock()
	return len(n.conns.conns)
}

// load has a number of callers of a node ask for k, and counts what they are answered, until it is ended.
func (c *testCluster) load(n *testNode, callers int, ask shard.Take) (end func() (allowed, asked int64)) {
	var all sync.WaitGroup
	var allowed, asked atomic.Int64
	var ended atomic.Bool
	for range callers {
		all.Go(func() {
			for !ended.Load() {
				g, _ := n.ask(c.t.Context(), ask)
				if s := g.Takes[0].Source; s != shard.Owner && s != shard.Lent {
					c.t.Errorf("check %d was answered by %v", asked.Load(), s)
				}
				if g.Allowed {
					allowed.Add(1)
				}
				asked.Add(1)
				time.Sleep(100 * time.Microsecond) // what a lease denies takes no time
			}
		})
	}
	return func() (int64, int64) {
		ended.Store(true)
		all.Wait()
		return allowed.Load(), asked.Load()
	}
}

// Connections are renewed when certificates are replaced, while checks are always under way: no check is lost, and no connection is left over.
func TestConnectionsAreRenewed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		owner, key := c.nodes[1], c.ownedBy(c.nodes[1], 0)
		owner.perTake.Store(int64(time.Millisecond))
		before := owner.open()
		end := c.load(c.nodes[0], 8, take(key, 1000, 1))
		const times = 3
		for range times {
			time.Sleep(2 * renewEvery)
			c.certificates.Add(1)
		}
		time.Sleep(2 * renewEvery)
		allowed, asked := end()
		synctest.Wait()
		if got := allowed + c.lent(key); got != 1000 || asked < 3000 {
			t.Errorf("%d of %d allowed, want 1000", got, asked)
		}
		c.mu.Lock()
		dialed := len(c.conns[[2]string{"a", "b:1"}])
		c.mu.Unlock()
		if want := (times + 1) * connsPerPeer(); dialed != want {
			t.Errorf("%d connections were made to the owner, want %d", dialed, want)
		}
		if got := owner.open(); got != before {
			t.Errorf("%d connections are open, %d were before", got, before)
		}
	})
}

// A connection that cannot be renewed goes on, and is renewed once it can be.
func TestRenewalIsTriedAgain(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		way := [2]string{"a", "b:1"}
		c.mu.Lock()
		c.cuts[way] = true // no new connection; those that there are go on
		c.mu.Unlock()
		c.nodes[1].perTake.Store(int64(time.Millisecond))
		end := c.load(c.nodes[0], 2, take(c.ownedBy(c.nodes[1], 0), 1000, 1))
		c.certificates.Add(1)
		time.Sleep(5 * renewEvery)
		dialed := func() int {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.conns[way])
		}
		if got := dialed(); got != connsPerPeer() {
			t.Errorf("%d connections were made", got)
		}
		c.mu.Lock()
		c.cuts[way] = false
		c.mu.Unlock()
		time.Sleep(3 * renewEvery)
		if got, want := dialed(), 2*connsPerPeer(); got != want {
			t.Errorf("%d connections were made, want %d", got, want)
		}
		end()
	})
}
