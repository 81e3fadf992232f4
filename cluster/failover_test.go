package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestTakeover kills an owner, waits until its lease has ended, and looks whether anything was
// forgotten that was replicated.
func TestTakeover(t *testing.T) {
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		pass(2 * replicateEvery)
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
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 7)
		pass(2 * replicateEvery)
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
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		pass(2 * replicateEvery)
		c.crash("b")
		c.start("b")
		provisional := 0
		for began := time.Now(); time.Since(began) < decisionLeaseTime/2; pass(50 * time.Millisecond) {
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
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		for _, id := range []string{"b", "c", "a"} {
			pass(2 * replicateEvery)
			c.crash(id)
			c.start(id)
			c.settled()
		}
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestOneOfTwoCopiesDecides gives an owner that holds nothing yet and its standby copies that are as good.
func TestOneOfTwoCopiesDecides(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		k, p, standby := c.unheld()
		has := copyVersion{term: 1 << 40, seq: 7, whole: true}
		decides := func(of copyVersion) (best bool, owner string) {
			k.mu.Lock()
			k.parts[p].copy, k.parts[p].fresh, k.parts[p].copyAt = has, true, party{}
			w := whereabouts{partition: p, own: has, bestCopy: has}
			w.note(&otherMember{member: Member{ID: "x"}}, &peerv1.Located{Term: uint64(has.term), Sequence: 8, Whole: true}, k.ownParty, k.view)
			w.note(standby, &peerv1.Located{Term: uint64(of.term), Sequence: of.seq, Whole: of.whole}, k.ownParty, k.view)
			k.mu.Unlock()
			if of.seq == 8 && of.whole && w.best != standby {
				t.Error("of two copies that are as good, another one than the standby's comes first")
			}
			w.best = nil
			k.noteCopies([]whereabouts{w}, false)
			_, best = k.Copy(p)
			owner, _ = k.OwnerOf(p)
			return best, owner
		}
		for _, of := range []copyVersion{has, {term: has.term, seq: 8, whole: true}} {
			if best, owner := decides(of); best || owner != "b" {
				t.Errorf("with a standby with %v: best %v, and %q is said to have it", of, best, owner)
			}
		}
		for _, of := range []copyVersion{{term: has.term, seq: 6, whole: true}, {term: has.term, seq: 8}} {
			if best, _ := decides(of); !best {
				t.Errorf("with a standby with %v: no node decides", of)
			}
		}
		decides(has)
		c.crash("c")
		c.await("c is known not to answer", func() bool { return !k.Router.Reaches("c") })
		if _, best := k.Copy(p); !best {
			t.Error("with a standby that does not answer: no node decides")
		}
	})
}

// TestCopyOfANodeThatEnds has a node stand by without a copy, for one that is about to end.
func TestCopyOfANodeThatEnds(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		k, p := c.alive["c"].ownership, uint32(0)
		k.mu.Lock()
		for k.view.Members[k.view.Ring.Owner(p)].ID != "a" || k.view.Members[k.view.Ring.Standby(p)].ID != "c" {
			p++
		}
		k.parts[p].copy, k.parts[p].fresh = copyVersion{}, false
		has := &peerv1.Located{Term: 1 << 40, Sequence: 7, Whole: true}
		ending := &peerv1.Located{Term: 1 << 40, Sequence: 7, Whole: true, Ending: true}
		find := func(owner *peerv1.Located, other *peerv1.Located) *whereabouts {
			w := &whereabouts{partition: p}
			w.note(k.peers["a"], owner, k.ownParty, k.view)
			if other != nil {
				w.note(k.peers["b"], other, k.ownParty, k.view)
			}
			return w
		}
		cases := []struct {
			w    *whereabouts
			from string // "" if nothing is fetched
		}{
			{find(has, has), ""},
			{find(ending, nil), "a"},
			{find(ending, has), "b"},
			{find(ending, ending), "a"},
		}
		matched := cases[1].w.matched
		k.mu.Unlock()
		for i, tc := range cases {
			if lacks := k.lacksCopy(tc.w); lacks != (tc.from != "") || lacks && tc.w.best.member.ID != tc.from {
				t.Errorf("case %d: to be fetched %v, the best one is at %s", i, lacks, tc.w.best.member.ID)
			}
		}
		if matched {
			t.Error("another node is said to have a copy, which is about to end")
		}
	})
}

// TestRestartedStandbyLocatesTheOwner has the standby of a dead owner restart, while the one that the owner has not fetched it from is
// there, and sends it what it decides.
func TestRestartedStandbyLocatesTheOwner(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		c.replicated()
		before := c.alive["b"].router.View()
		c.crash("d")
		c.announce(c.alive["b"], Leaving)
		pass(time.Second)
		c.crash("c")
		c.start("c")
		node := c.alive["c"]
		c.await("c reaches a and b", func() bool { return node.router.Reaches("a") && node.router.Reaches("b") })
		c.replicated()
		v, asked := node.router.View(), 0
		for i := range 400 {
			k := ownershipKey(i)
			p := k.Partition(uint32(ownershipRing.Partitions))
			owner, standby := v.Members[v.Ring.Owner(p)].ID, v.Members[v.Ring.Standby(p)].ID
			if before.Members[before.Ring.Owner(p)].ID != "b" || owner != "d" || standby != "c" {
				continue
			}
			asked++
			if _, source := c.checkAt(node, k); source != shard.Owner && source != shard.Relayed {
				t.Errorf("key %d is not decided by b, but by source %d", i, source)
			}
		}
		if asked == 0 {
			t.Error("there is no such key")
		}
	})
}
