package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

func TestHandOverWhenNodesJoinAndLeave(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 4)
		c.start("d")
		c.take(allowed, keys, 1)
		c.settled()
		c.take(allowed, keys, 1)
		c.start("e")
		c.settled()
		c.take(allowed, keys, 1)
		c.leave("a")
		c.take(allowed, keys, 1)
		c.settled()
		c.leave("d")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

func TestRollingRestart(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 6)
		for _, id := range []string{"a", "b", "c"} {
			c.leave(id)
			c.start(id)
			c.settled()
		}
		c.take(allowed, keys, 6)
		c.exact(allowed, keys, 10)
	})
}

// TestLostDuringHandover kills a node of which a new one has fetched only part of what it is to have:
// of the rest, which the new one owns, others have copies.
func TestLostDuringHandover(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		pass(2 * feedEvery)
		c.start("d")
		c.await("d is a member", func() bool { return len(c.alive["a"].router.View().Present()) == 4 })
		c.crash("c")
		pass(4 * (50 * time.Millisecond)) // d has asked for copies
		c.take(allowed, keys, 1)
		c.registry.expire("c")
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestLossyConnectionIsReplaced loses what nodes send for a while, so that their connections are
// of no use any more, although they are open.
func TestLossyConnectionIsReplaced(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.losing.Store(true)
		pass(30 * time.Second)
		c.losing.Store(false)
		healed := time.Now()
		pass(5 * time.Second)
		for _, o := range c.alive["a"].owners.knownMembers.all() {
			if _, heard := o.last(); heard.Before(healed) {
				t.Errorf("%s was heard %v before it could be heard again", o.member.ID, healed.Sub(heard))
			}
		}
	})
}

// TestHandOverUnderLoad asks from many sides while nodes come and go.
func TestHandOverUnderLoad(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 40
		c.start("a", "b", "c")
		c.settled()
		l := c.begin(keys, 16)
		for _, id := range []string{"d", "e"} {
			pass(20 * time.Millisecond)
			c.start(id)
			c.settled()
			c.ask(l)
		}
		for _, id := range []string{"a", "d"} {
			pass(20 * time.Millisecond)
			c.ask(l, id)
			c.leave(id)
			c.settled()
		}
		l.end()
		if l.asked < 20*keys || l.undecided > 0 {
			t.Errorf("%d asked, %d not decided", l.asked, l.undecided)
		}
		c.exact(l.allowed, keys, 10)
	})
}

// TestLeavingWithTheLastCopy has a node leave that has the only copies of what a restarted owner has lost, while the standby that
// takes its place has only what it had when it stood by long ago.
func TestLeavingWithTheLastCopy(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "c")
		c.settled()
		c.take(allowed, keys, 4)
		c.replicated()
		c.start("b")
		c.settled()
		c.take(allowed, keys, 3)
		c.replicated()
		c.crash("a")
		c.start("a")
		c.await("a is admitted again", func() bool {
			v := c.alive["b"].router.View()
			i, member := v.Index("a")
			return member && v.Members[i].Incarnation == 2
		})
		b := c.alive["b"]
		c.losing.Store(true) // so that no node can fetch them yet
		c.announce(b, Leaving)
		c.await("b leaves", func() bool { return b.owners.View().IsLeaving(b.owners.life()) })
		if s := b.owners.HandoverStatus(); s.Leaving == 0 {
			t.Errorf("%+v: it does not wait until others have what it has", s)
		}
		c.losing.Store(false)
		c.leave("b")
		c.take(allowed, keys, 10)
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestNewOwnerDiesBeforeItFeeds kills a new owner as soon as a view names it: the former one decides from what it has until then, and goes on.
func TestNewOwnerDiesBeforeItFeeds(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a")
		c.settled()
		c.take(allowed, keys, 7)
		c.start("b")
		moved := func() bool {
			return slices.ContainsFunc(c.alive["a"].owners.View().Partitions, func(p view.Partition) bool { return p.Owner.ID == "b" })
		}
		for !moved() {
			pass(time.Millisecond)
		}
		c.crash("b")
		provisional := 0
		for range 2 {
			for i := range keys {
				ok, source := c.checkAt(c.alive["a"], ownershipKey(i))
				if source == shard.Undecided {
					t.Errorf("key %d is not decided", i)
				}
				allowed[ownershipKey(i)] += int(boolByte(ok))
				provisional += int(boolByte(source == shard.Provisional))
			}
		}
		if provisional == 0 {
			t.Error("no key was asked for that has moved")
		}
		c.registry.expire("b")
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}
