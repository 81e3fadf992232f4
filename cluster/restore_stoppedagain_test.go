package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/ring"
)

// stopOneByOne starts a, b and c and stops them one after the other, each with later counters. It loses the last views of that many, all for 0, none for -1.
func (c *ownershipCluster) stopOneByOne(allowed map[ring.Key]int, back int) {
	c.t.Helper()
	c.start("a", "b", "c")
	for _, id := range []string{"a", "b", "c"} {
		c.settled()
		c.take(allowed, restoredKeys, 2)
		c.replicated()
		c.saveAtEnd(id)
		c.registry.expire(id)
	}
	if back >= 0 {
		c.registry.loseView(back)
	}
}

// TestStoppedAgainWhileItWaits stops all nodes, and the first that is started again once more while it waits for the others.
func TestStoppedAgainWhileItWaits(t *testing.T) {
	for _, back := range []int{-1, 0, 1} {
		for _, runs := range []time.Duration{0, 2 * time.Second, 5 * time.Second} {
			t.Run(fmt.Sprint(back, runs), func(t *testing.T) {
				inOwners(t, func(t *testing.T, c *ownershipCluster) {
					allowed := make(map[ring.Key]int)
					c.stopOneByOne(allowed, back)
					c.start("a")
					pass(runs)
					c.saveAtEnd("a")
					c.registry.expire("a")
					for _, id := range []string{"a", "b", "c"} {
						c.start(id)
						pass(4 * time.Second)
					}
					c.settled()
					c.take(allowed, restoredKeys, 6)
					c.exact(allowed, restoredKeys, 10)
				})
			})
		}
	}
}

// TestNodesWaitLongForTheRegistry has the registry be back long after all nodes were started. They register one after the other.
func TestNodesWaitLongForTheRegistry(t *testing.T) {
	for _, back := range []int{-1, 0, 1} {
		t.Run(fmt.Sprint(back), func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				allowed := make(map[ring.Key]int)
				c.stopOneByOne(allowed, back)
				var nodes []*ownershipNode
				for _, id := range []string{"a", "b", "c"} {
					c.starts[id]++
					nodes = append(nodes, c.launch(id, c.starts[id]))
				}
				pass(15 * time.Second)
				for _, n := range nodes {
					c.follow(n)
					c.registry.Announce(n.node)
					pass(2 * time.Second)
				}
				c.settled()
				c.take(allowed, restoredKeys, 6)
				c.exact(allowed, restoredKeys, 10)
			})
		})
	}
}

// TestSnapshotOfLostViewsIsGivenUp starts a node with a snapshot of views that were lost, once the views of the others have passed its terms. It is a standby all
// the same.
func TestSnapshotOfLostViewsIsGivenUp(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		for _, id := range []string{"a", "b"} {
			c.settled()
			c.saveAtEnd(id)
			c.registry.expire(id)
		}
		c.settled()
		c.startAndLeave("d", 2)
		c.saveAtEnd("c")
		c.registry.expire("c")
		c.registry.loseView(0)
		c.start("a", "b")
		pass(12 * time.Second)
		c.startAndLeave("d", 6)
		c.start("c")
		pass(20 * time.Second)
		if !c.isSettled() {
			t.Error("20 s later not every partition has its owner and its standby")
		}
	})
}

// startAndLeave has a node join and leave, over and over.
func (c *ownershipCluster) startAndLeave(id string, times int) {
	for range times {
		c.start(id)
		c.settled()
		c.leave(id)
		c.settled()
	}
}
