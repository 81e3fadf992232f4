package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/shard"
)

// While the first view is adopted, goroutines that serve other nodes ask whether a member is reached. The router gets the view last.
func TestReachedBeforeTheRouterHasAView(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		n := c.launch("a", 1)
		synctest.Wait() // Run has begun, and serves no other member
		b := Life{ID: "b", Incarnation: 1}
		n.owners.knownMembers.byLife.Store(&map[Life]*otherMember{b: {member: Member{ID: "b", Incarnation: 1}}})
		defer n.owners.knownMembers.byLife.Store(new(map[Life]*otherMember))
		if n.router.View() != nil || n.owners.Reached(b) {
			t.Error("it reaches a member that its router does not know")
		}
	})
}

// A member that died was dropped, and comes back as another life before its partitions were settled elsewhere. Its connection answers before its heartbeat
// does: the next owners do not take it for the life that they wait for, and go on to decide from their copies.
func TestLaterLifeThatAnswers(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		c.replicated()
		keys := c.ownedBy("b", 10)
		c.crash("b")
		pass(200 * time.Millisecond)
		c.registry.expire("b")
		c.await("b was dropped", func() bool { return !c.alive["a"].owners.View().IsMember(Life{ID: "b", Incarnation: 1}) })
		c.starts["b"]++
		c.launch("b", c.starts["b"]) // it is not registered yet
		for range 60 {
			for i, key := range keys {
				if _, source := c.checkAt(c.alive["a"], key); source == shard.Undecided {
					t.Fatalf("key %d: no node decides", i)
				}
			}
			pass(10 * time.Millisecond)
		}
	})
}

// A member that this node has lost is reached for as long as others reach it, also if this node is first asked about it when they should have said so. A next
// owner would decide from its copy else, apart from the former one.
func TestOthersSayWhetherTheyReachALostMember(t *testing.T) {
	for phase := time.Duration(0); phase < heartbeatEvery; phase += heartbeatEvery / 10 {
		inOwners(t, func(t *testing.T, c *ownershipCluster) {
			c.start("a", "b", "c")
			c.settled()
			time.Sleep(phase)
			c.unreach(true, "b:1", "c")
			n, b := c.alive["c"], Life{ID: "b", Incarnation: 1}
			c.await("c loses b", func() bool { return !n.router.Reaches("b") })
			for range 10 {
				time.Sleep(wordWithin)
				if !n.owners.Reached(b) {
					t.Errorf("cut %v after the members settled: c takes b for lost, which a reaches", phase)
					break
				}
			}
		})
	}
}

// What a member has said counts no more once it is gone as well: a next owner that waits for one that is said to be reached grants nothing.
func TestWordOfAMemberThatIsGone(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		c.unreach(true, "b:1", "a", "d")
		pass(2 * heartbeatEvery)
		n, b := c.alive["a"], Life{ID: "b", Incarnation: 1}
		if !n.owners.Reached(b) {
			t.Error("c reaches b, and a takes it for lost")
		}
		c.crash("b")
		c.crash("c")
		pass(2 * wordWithin)
		if n.owners.Reached(b) {
			t.Error("a takes b for reached: c said so, which has died with it")
		}
	})
}
