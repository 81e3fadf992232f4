package cluster

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// endWithFarewell ends a node as one that is told to stop without the registry: it leaves its partitions to its standbys, and stays registered as it was. then is called
// once all that follows at once has happened.
func (c *ownershipCluster) endWithFarewell(id string, then func()) {
	n := c.alive[id]
	flushing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.owners.Flush(flushing)
	n.conns.Close()
	n.server.Stop()
	n.owners.SayFarewell()
	synctest.Wait()
	then()
	c.crash(id)
}

// cutOff has a node that is yet to start reach no other one, and be reached by none, or mends that.
func (c *ownershipCluster) cutOff(id string, cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.alive {
		c.cuts[[2]string{id, other + ":1"}], c.cuts[[2]string{other, id + ":1"}] = cut, cut
	}
}

// provisional returns how many nodes decide about a key from copies for all that ask, without one that ends.
func (c *ownershipCluster) provisional(key int, without string) (nodes int) {
	for _, n := range c.alive {
		nodes += int(boolByte(n.id != without && n.owners.node.DecidesProvisionally(ownershipKey(key).Partition(uint32(ownershipRing.Partitions)))))
	}
	return nodes
}

// TestFarewell ends the node that writes views, which stays registered as ready. It does not reach the next writer, to which the third node passes its farewell on.
func TestFarewell(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		c.replicated()
		a, b := c.alive["a"], c.alive["b"]
		c.cut(&a.testNode, &b.testNode)
		c.endWithFarewell("a", func() {})
		began := time.Now()
		c.take(allowed, keys, 1)
		c.settled()
		if took := time.Since(began); took >= replica.LeaseTime {
			t.Errorf("the partitions were settled elsewhere after %v, as if the node had died", took)
		}
		if !a.owners.IsOver() || a.node.State != Ready {
			t.Errorf("over: %t, registered as %s, want an ended node that is registered as ready", a.owners.IsOver(), a.node.State)
		}
		for i := range keys {
			ok, source := c.check(ownershipKey(i))
			allowed[ownershipKey(i)] += int(boolByte(ok))
			if source != shard.Owner {
				t.Fatalf("key %d is decided by source %d, want an owner", i, source)
			}
		}
		c.take(allowed, keys, 4)
		c.exact(allowed, keys, 10)
	})
}

// TestFarewellIsFinal has a node say farewell while it owns partitions and its servers still answer: it decides and confirms nothing from then on, and the others take it
// for ended.
func TestFarewellIsFinal(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		a, b := c.alive["a"], c.alive["b"]
		life := a.owners.life()
		if !b.owners.Reached(life) || len(b.owners.Farewells()) > 0 {
			t.Fatalf("before the farewell: reached %t, farewells %v", b.owners.Reached(life), b.owners.Farewells())
		}
		a.owners.SayFarewell()
		if b.owners.Reached(life) {
			t.Error("a member counts as reached that has said farewell")
		}
		if log := c.log.String(); strings.Contains(log, "level=ERROR") {
			t.Errorf("a member does not understand it:\n%s", log)
		}
		if !a.owners.IsOver() {
			t.Error("a node may decide after its farewell")
		}
		if _, err := a.owners.server().Heartbeat(context.Background(), &peerv1.HeartbeatRequest{Caller: b.owners.caller(b.owners.knownMembers.of(life))}); err == nil {
			t.Error("a node confirms a decision lease after its farewell")
		}
		c.crash("a")
		c.settled()
		c.start("d") // the members before the next change are without a
		c.settled()
		if left := b.owners.Farewells(); len(left) > 0 {
			t.Errorf("farewells of %v are kept, which no view names any more", left)
		}
	})
}

// Farewells are heard of nodes that the view concerns only, and of lives that it names. A node that hears that it has ended itself decides nothing any more,
// as others need not wait for it.
func TestFarewellOfAnother(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		a, b := c.alive["a"].owners, c.alive["b"].owners
		stranger := view.Life{ID: "stranger", Incarnation: 1}
		earlier := b.life()
		earlier.Incarnation--
		for _, from := range []view.Life{stranger, earlier} {
			a.hear(from, nil, nil, wireFarewells([]view.Life{a.life(), c.alive["c"].owners.life()}))
		}
		a.hear(b.life(), nil, nil, wireFarewells([]view.Life{stranger}))
		if left := a.Farewells(); len(left) > 0 || a.IsOver() {
			t.Errorf("a node takes %v for ended, and itself: %t", left, a.IsOver())
		}
		a.hear(b.life(), nil, nil, wireFarewells([]view.Life{a.life()}))
		if !a.IsOver() || !strings.Contains(c.log.String(), "start it again") {
			t.Errorf("a node decides that others take for ended:\n%s", c.log.String())
		}
	})
}

// TestLearnerStandsIn ends a node while the registry takes no views, and the newest one names no standby of some of its partitions. The learner has copies, and grants from
// them at all nodes until the registry is back.
func TestLearnerStandsIn(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 300
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c", "d")
		c.settled()
		c.take(allowed, keys, 6)
		c.replicated()
		c.crash("c")
		c.registry.expire("c")
		a := c.alive["a"]
		c.await("the members are without c", func() bool { return !a.router.View().IsMember("c") })
		c.registry.change(func() { c.registry.down = true })
		pass(replica.LeaseTime + 2*heartbeatEvery) // the owners have settled, and the learners have copies and report that
		v, alone := a.owners.View(), c.withoutStandby("a", keys)
		if len(alone) == 0 {
			t.Fatal("all partitions of a have standbys")
		}
		c.endWithFarewell("a", func() {
			for _, i := range alone {
				if n := c.provisional(i, "a"); n != 1 {
					t.Errorf("key %d: %d nodes stand in as soon as the farewell is heard, want the learner", i, n)
				}
			}
		})
		for _, n := range c.alive {
			for _, i := range alone {
				ok, source := c.checkAt(n, ownershipKey(i))
				allowed[ownershipKey(i)] += int(boolByte(ok))
				if !ok || source != shard.Provisional {
					t.Errorf("key %d at %s: %t by source %d, want it allowed from a copy", i, n.id, ok, source)
				}
			}
		}
		c.cutOff("a", true)
		again := c.startOffline("a", v) // it has nothing, and leaves it to the learners, which it does not reach at first
		for _, cut := range []bool{true, false} {
			c.cutOff("a", cut)
			pass(2 * time.Second)
			for _, i := range alone {
				if n := c.provisional(i, ""); n != 1 {
					t.Errorf("key %d, with the later life of the owner cut off (%t): %d nodes stand in, want the learner", i, cut, n)
				}
			}
		}
		c.reaching(again)
		c.registry.change(func() { c.registry.down = false })
		c.registry.expire("a")
		c.enlist(again)
		c.settled()
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// withoutStandby returns the keys in partitions that a node owns, and of which the newest view names no standby.
func (c *ownershipCluster) withoutStandby(id string, keys int) (alone []int) {
	v := c.alive[id].owners.View()
	for i := range keys {
		part := v.Partitions[ownershipKey(i).Partition(uint32(len(v.Partitions)))]
		if part.Owner.ID == id && part.Standby == (view.Life{}) {
			alone = append(alone, i)
		}
	}
	return alone
}

// TestLearnerStandsInOnceItIsComplete has the only other node hear the farewell of an owner before it has all of its counters: it does not reach the owner
// from the moment on that it is a member.
func TestLearnerStandsInOnceItIsComplete(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		c.registry.change(func() {
			c.registry.watchers = slices.Insert(c.registry.watchers, 0, func(content RegistryContent) {
				if content.View.IsMember(view.Life{ID: "b", Incarnation: 1}) && !c.registry.down {
					c.registry.down = true
					c.cutOff("b", true)
				}
			})
		})
		c.start("b")
		a, b := c.alive["a"], c.alive["b"]
		c.await("b is a member", func() bool { return b.router.View() != nil && b.router.View().IsMember("b") })
		b.owners.hear(a.owners.life(), nil, nil, wireFarewells([]view.Life{a.owners.life()}))
		if id := (locator{b.owners}).StandIn(0); id != "" {
			t.Errorf("%s stands in before it has a complete copy", id)
			return
		}
		c.cutOff("b", false)
		c.await("b stands in", func() bool { return locator{b.owners}.StandIn(0) == "b" })
	})
}
