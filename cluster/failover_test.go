package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestTakeover kills an owner, waits until its lease has ended, and looks whether anything was
// forgotten that was replicated.
func TestTakeover(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		pass(2 * feedEvery)
		c.crash("b")
		c.take(allowed, keys, 1) // the standbys decide
		pass(5 * time.Second)
		c.take(allowed, keys, 1)
		c.registry.expire("b")
		pass(goneGrace + recheck)
		c.take(allowed, keys, 1) // the new owners, from their copies
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartAtOnce kills an owner and starts it again under its id before any node notices.
func TestRestartAtOnce(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		pass(2 * feedEvery)
		c.crash("b")
		c.start("b")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartedOwnerHasNoCopies asks for used up keys while a restarted owner may not restore
// its partitions yet: the standbys know of them, and the owner does not.
func TestRestartedOwnerHasNoCopies(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		pass(2 * feedEvery)
		c.crash("b")
		c.start("b")
		provisional := 0
		for began := time.Now(); time.Since(began) < replica.LeaseTime/2; pass(50 * time.Millisecond) {
			for i := range keys {
				for _, n := range c.alive {
					if _, reachable := n.router.Members(); len(reachable) == 0 || slices.Contains(reachable, false) {
						continue // no node asks it yet
					}
					ok, source := c.checkAt(n, ownershipKey(i))
					allowed[ownershipKey(i)] += int(boolByte(ok))
					provisional += int(boolByte(source == shard.Provisional))
				}
			}
		}
		if provisional == 0 {
			t.Error("no standby was asked")
		}
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestRestartedStandbyIsSentCopies kills the owners of what a restarted standby had copies of, and that no check
// has asked for since.
func TestRestartedStandbyIsSentCopies(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		for _, id := range []string{"b", "c", "a"} {
			pass(2 * feedEvery)
			c.crash(id)
			c.start(id)
			c.settled()
		}
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}
