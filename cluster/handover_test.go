package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

func TestHandOverWhenNodesJoinAndLeave(t *testing.T) {
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
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
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
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
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 200
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, keys, 10)
		pass(2 * replicateEvery)
		c.start("d")
		c.await("d is a member", func() bool { return len(c.alive["a"].router.View().Present()) == 4 })
		c.crash("c")
		pass(4 * acquireEvery) // d has asked for copies
		c.take(allowed, keys, 1)
		c.registry.expire("c")
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestReplicatedUntilHandover kills an owner before a newcomer has fetched anything from it. It stands by for what goes to that, and until then
// who stood by before goes on to be told.
func TestReplicatedUntilHandover(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.start("d")
		a, dying, slow := c.alive["a"], c.alive["c"], c.alive["d"].ownership
		slow.mu.Lock()
		for p := range slow.parts {
			slow.parts[p].pulling = true // so it fetches nothing else
		}
		slow.mu.Unlock()
		c.await("d is a member, and answers", func() bool { return len(a.router.View().Present()) == 4 && a.router.Reaches("d") })
		v, by, moving := a.router.View(), dying.Deciding(), []ring.Key(nil)
		for i := range 200 {
			k := ownershipKey(i)
			if p := k.Partition(uint32(ownershipRing.Partitions)); by[p] != 0 && v.Members[v.Ring.Owner(p)].ID == "d" && v.Members[v.Ring.Standby(p)].ID == "c" {
				moving = append(moving, k)
			}
		}
		if len(moving) < 5 {
			t.Errorf("%d of 200 keys are to move from c to d", len(moving))
		}
		for _, k := range moving {
			for range ownershipLimit.Limit {
				if ok, source := c.checkAt(a, k); !ok || source != shard.Owner {
					t.Errorf("allowed %t by %v", ok, source)
				}
			}
		}
		pass(2 * urgentEvery)
		c.crash("c")
		for _, k := range moving {
			if ok, source := c.checkAt(a, k); ok || source != shard.Provisional {
				t.Errorf("after the death of its owner: allowed %t by %v", ok, source)
			}
		}
	})
}

// TestLossyConnectionIsReplaced loses what nodes send for a while, so that their connections are
// of no use any more, although they are open.
func TestLossyConnectionIsReplaced(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.losing.Store(true)
		pass(30 * time.Second)
		c.losing.Store(false)
		healed := time.Now()
		pass(5 * time.Second)
		k := c.alive["a"].ownership
		k.mu.Lock()
		defer k.mu.Unlock()
		for id, heard := range k.lease.heard {
			if heard.Before(healed) {
				t.Errorf("%s was heard %v before it could be heard again", id, healed.Sub(heard))
			}
		}
	})
}

// TestHandOverUnderLoad asks from many sides while nodes come and go.
func TestHandOverUnderLoad(t *testing.T) {
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
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

// TestLostBeforeFetched kills the first node before the others have fetched much from it.
func TestLostBeforeFetched(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("b")
		c.settled()
		c.start("a", "c")
		c.await("all are members, and the others have met", func() bool {
			a, d := c.alive["a"].router, c.alive["c"].router
			return len(a.View().Present()) == 3 && a.Reaches("c") && d.Reaches("a")
		})
		if c.isSettled() {
			t.Error("all was fetched before")
		}
		c.crash("b")
		pass(2 * acquireEvery) // until they know that no node has a copy of what b has owned or stood by for
		c.take(allowed, keys, 1)
		c.registry.expire("b")
		c.await("b is no member", func() bool { return len(c.alive["a"].router.View().Present()) == 2 })
		c.take(allowed, keys, 3)
		c.settled()
		c.take(allowed, keys, 10)
		for i := range keys { // what was answered too late, or apart, is a tenth at most
			if n := allowed[ownershipKey(i)]; n < 9 || n > 11 {
				t.Errorf("key %d: %d of 10 were allowed", i, n)
			}
		}
	})
}

// TestLeavingWithTheLastCopy has a node leave that has the only copies of what a restarted owner has lost, while the standby that
// takes its place has only what it had when it stood by long ago.
func TestLeavingWithTheLastCopy(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
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
		c.await("b leaves", func() bool {
			b.ownership.mu.Lock()
			defer b.ownership.mu.Unlock()
			return b.ownership.leaving()
		})
		if s := b.HandoverStatus(); s.Leaving <= b.holds() {
			t.Errorf("%+v: it does not wait until others have its copies, except for the %d partitions that it owns", s, b.holds())
		}
		c.losing.Store(false)
		c.leave("b")
		c.take(allowed, keys, 10)
		c.settled()
		c.take(allowed, keys, 1)
		c.exact(allowed, keys, 10)
	})
}

// TestNotRestoredWhileFetched looks for a copy twice at once.
func TestNotRestoredWhileFetched(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		k, p, standby := c.unheld()
		if !k.begin(p) {
			t.Fatal("it is being fetched already")
		}
		k.createLost(t.Context(), []whereabouts{{partition: p, safe: true, best: standby, bestCopy: copyVersion{term: 1 << 40, seq: 1, whole: true}}}, true)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.parts[p].tenure.state == active {
			t.Error("it is restored from half a copy")
		}
		k.parts[p].pulling = false
	})
}

// Where a view comes after the members were asked, a partition is not restored by what they have said before it: no node may know of its epoch yet.
func TestNotRestoredForAnotherEpoch(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		k := c.alive["a"].ownership
		c.crash("b")
		c.registry.expire("b")
		creates := func() (p uint32, epoch uint64, some bool) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for p := range k.parts {
				if claim := k.claim(uint32(p)); k.parts[p].tenure.mayCreate(claim) {
					return uint32(p), claim.epoch, true
				}
			}
			return 0, 0, false
		}
		c.await("a is to restore a partition", func() bool { _, _, some := creates(); return some })
		p, epoch, _ := creates()
		k.mu.Lock()
		k.unconfirmed[epoch], k.unconfirmed[epoch-1] = time.Time{}, time.Now().Add(-time.Minute)
		k.mu.Unlock()
		if !k.mayRecover(p, epoch, true) {
			t.Error("it may not, though all have answered")
		}
		if k.mayRecover(p, epoch, false) {
			t.Error("it may of an epoch that no majority knows yet, though not all have answered")
		}
		if k.mayRecover(p, epoch-1, true) {
			t.Error("it may by what was said in the epoch before")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.create(p, epoch-1) || k.parts[p].tenure.state != absent {
			t.Error("it is made for the epoch before")
		}
	})
}

// A node that fetches pauses longer, the longer it takes and the more others fetch from the same member, but neither for long at a time nor
// for long in all.
func TestFetchPause(t *testing.T) {
	const ms = time.Millisecond
	for _, tc := range []struct {
		took                 time.Duration
		fetching, partitions int
		want                 time.Duration
	}{
		{0, 1, 1, fetchEvery},
		{ms, 1, 85, fetchEvery},
		{4 * ms, 1, 85, 8 * ms},
		{time.Second, 1, 85, fetchEveryMost},
		{ms, 4, 56, 4 * fetchEvery},
		{time.Second, 4, 40, 4 * fetchEveryMost},
		{time.Second, 127, 2, fetchPauseMost},
		{time.Second, 2, 500, fetchWithin / 500},
	} {
		if got := fetchPause(tc.took, tc.fetching, tc.partitions); got != tc.want {
			t.Errorf("%v, %d fetch %d: %v, want %v", tc.took, tc.fetching, tc.partitions, got, tc.want)
		}
	}
}
