package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// loseRegistry ends the renewal of all leases.
func (c *ownershipCluster) loseRegistry() {
	for _, n := range c.alive {
		n.mu.Lock()
		n.leased = false
		n.mu.Unlock()
	}
}

// startOffline starts a node from a view that it gets once it runs, without the registry.
func (c *ownershipCluster) startOffline(id string, v *view.View) *ownershipNode {
	n := c.launch(id, 0)
	n.mu.Lock()
	n.leased = false
	n.mu.Unlock()
	synctest.Wait()
	n.owners.Adopt(v)
	return n
}

// enlist registers a node that was started without the registry.
func (c *ownershipCluster) enlist(n *ownershipNode) {
	c.starts[n.id]++
	n.node.Incarnation = c.starts[n.id]
	n.owners.Become(n.node.Incarnation)
	c.follow(n)
	c.registry.Announce(n.node)
}

// A node that is started again is soon known to be another life, however long others have tried in vain to connect to it.
func TestLaterLivesAreKnownSoon(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		v := c.alive["a"].owners.View()
		former := c.alive["c"].owners.life()
		c.loseEtcd()
		for range 5 {
			c.crash("c")
			pass(3 * time.Second)
			c.startOffline("c", v)
			pass(310 * time.Millisecond) // 0.25 s between attempts, and up to a fifth more
			for _, id := range []string{"a", "b"} {
				m := &c.alive[id].owners.knownMembers
				if !m.hasEnded(former) || m.of(former).answered.Load() != c.alive["c"].owners.life().Incarnation {
					t.Errorf("%s does not know of the later life", id)
				}
			}
		}
	})
}

// What the standby grants while it does not reach the owner counts in each of its lives, however the registry has numbered them: without one, with a number that
// it gets later, and after a restart.
func TestGrantsOfLivesWithoutRegistry(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		key := c.anyKey("a", "c")
		granted := 0
		grant := func() {
			c.unreach(true, "a:1", "b", "c")
			pass(300 * time.Millisecond)
			for range 2 {
				if ok, source := c.checkAt(c.alive["c"], key); !ok || source != shard.Provisional {
					t.Errorf("after %d: %v, source %d", granted, ok, source)
				}
				granted++
			}
			c.unreach(false, "a:1", "b", "c")
			pass(2 * time.Second)
		}
		grant()
		for range 2 {
			v := c.alive["a"].owners.View()
			c.crash("c")
			later := c.startOffline("c", v)
			pass(time.Second)
			grant()
			c.enlist(later)
			c.settled()
			pass(time.Second)
		}
		c.crash("c")
		c.start("c")
		c.settled()
		pass(time.Second)
		grant()
		for ok := true; ok; granted++ {
			ok, _ = c.check(key)
		}
		granted--
		if granted != 10 {
			t.Errorf("%d were granted, want a limit of 10", granted)
		}
	})
}

// reaching waits until a node reaches all members.
func (c *ownershipCluster) reaching(n *ownershipNode) {
	c.t.Helper()
	c.await(n.id+" reaches all", func() bool {
		for _, m := range n.router.View().Present() {
			if !n.router.Reaches(m.ID) {
				return false
			}
		}
		return true
	})
}

// TestStartWithoutRegistry restarts a node that the registry does not hear of. Its standbys decide from their copies, at every node,
// and send it what they have granted.
func TestStartWithoutRegistry(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		c.replicated()
		c.loseRegistry()
		v := c.alive["b"].owners.View()
		c.crash("b")
		b := c.startOffline("b", v)
		for _, n := range c.alive {
			c.reaching(n)
		}
		for _, n := range c.alive { // three of each key, of which three are left
			for i := range keys {
				ok, source := c.checkAt(n, ownershipKey(i))
				if !ok || source == shard.Undecided {
					t.Errorf("key %d at %s: %v, source %d", i, n.id, ok, source)
				}
				allowed[ownershipKey(i)]++
			}
		}
		for _, n := range c.alive {
			for i := range keys {
				if ok, source := c.checkAt(n, ownershipKey(i)); ok {
					t.Errorf("key %d at %s: allowed by source %d although it is exhausted", i, n.id, source)
				}
			}
		}
		if s := b.owners.HandoverStatus(); s.Active > 0 {
			t.Errorf("%d partitions are held under an incarnation that no view has", s.Active)
		}
		c.enlist(b)
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestStartAloneWithoutRegistry restarts the only member: it decides for its former life, and what it
// has counted stays when the registry is back, and when others join then.
func TestStartAloneWithoutRegistry(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a")
		c.settled()
		c.start("b") // so that the view is a later one than that which named a the owner
		c.settled()
		c.leave("b")
		c.settled()
		v := c.alive["a"].owners.View()
		c.crash("a")
		a := c.startOffline("a", v)
		for i := range keys {
			for range 4 {
				ok, source := c.checkAt(a, ownershipKey(i))
				if !ok || source != shard.Provisional {
					t.Fatalf("key %d: %v, source %d", i, ok, source)
				}
				allowed[ownershipKey(i)]++
			}
		}
		c.enlist(a)
		c.settled()
		c.take(allowed, keys, 3)
		c.start("b")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestTwoWithoutRegistry restarts one of two nodes, so that the other has no witness any more: it
// may not decide about its own either, and each does so for the other from copies.
func TestTwoWithoutRegistry(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b")
		c.settled()
		c.take(allowed, keys, 7)
		c.replicated()
		c.loseRegistry()
		v := c.alive["b"].owners.View()
		c.crash("b")
		b := c.startOffline("b", v)
		a := c.alive["a"]
		c.reaching(a)
		c.reaching(b)
		c.await("no node confirms the lease of a any more", func() bool { return a.owners.HandoverStatus().Until.Before(time.Now()) })
		c.replicated()
		for _, want := range []bool{true, true, true, false} {
			for i := range keys {
				n := [2]*ownershipNode{a, b}[i%2]
				ok, source := c.checkAt(n, ownershipKey(i))
				if ok != want || source != shard.Provisional {
					t.Errorf("key %d at %s: %v, source %d, want %v", i, n.id, ok, source, want)
				}
				allowed[ownershipKey(i)] += int(boolByte(ok))
			}
		}
		c.enlist(b)
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestStandbyIsRestarted restarts a standby. It has copies again, also of what has not changed
// since, when the owner dies.
func TestStandbyIsRestarted(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		c.replicated()
		c.crash("b")
		c.start("b")
		c.settled()
		c.replicated()
		c.crash("a")
		for i := range keys {
			if ok, source := c.check(ownershipKey(i)); ok {
				t.Errorf("key %d: allowed by source %d although it is exhausted", i, source)
			}
		}
	})
}
