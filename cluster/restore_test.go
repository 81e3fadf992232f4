package cluster

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// savedPartition is what a node had saved of one partition.
type savedPartition struct {
	partition       uint32
	snapshot        SnapshotVersion
	records, grants []byte
}

// save saves all that the nodes have.
func (c *ownershipCluster) save(ids ...string) {
	for _, id := range ids {
		c.disks[id], c.expected[id] = nil, c.alive[id].owners.SnapshotCopies().Members()
		for p := range uint32(ownershipRing.Partitions) {
			if v, records, _, ok := c.alive[id].owners.SnapshotCopies().Save(p, 0, nil); ok {
				c.disks[id] = append(c.disks[id], savedPartition{p, v, records, nil})
			}
		}
	}
}

// saveAtEnd saves what nodes have, with the grants that were not delivered, once they have ended.
func (c *ownershipCluster) saveAtEnd(ids ...string) {
	for _, id := range ids {
		k := c.alive[id].owners
		c.crash(id)
		synctest.Wait()
		c.disks[id], c.expected[id] = nil, k.SnapshotCopies().Members()
		for p := range uint32(ownershipRing.Partitions) {
			if v, records, _, ok := k.SnapshotCopies().Save(p, 0, nil); ok {
				c.disks[id] = append(c.disks[id], savedPartition{p, v, records, k.SnapshotCopies().Undelivered(p)})
			}
		}
	}
}

// killAll ends all nodes, and waits until the registry knows.
func (c *ownershipCluster) killAll() {
	for _, id := range slices.Sorted(maps.Keys(c.alive)) {
		c.crash(id)
		c.registry.expire(id)
	}
}

const restoredKeys = 200

// TestAllNodesAreRestarted restarts all nodes at once, or one after the other.
func TestAllNodesAreRestarted(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}, {"a", "b", "c"}} {
		for _, apart := range []time.Duration{0, 700 * time.Millisecond, 4 * time.Second} {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				allowed := make(map[ring.Key]int)
				c.start(ids...)
				c.settled()
				c.take(allowed, restoredKeys, 6)
				c.replicated()
				c.save(ids...)
				c.killAll()
				for _, id := range ids {
					c.start(id)
					pass(apart)
				}
				c.settled()
				c.take(allowed, restoredKeys, 6)
				c.exact(allowed, restoredKeys, 10)
			})
		}
	}
}

// TestNewestSnapshotCounts restarts all nodes, of which one has an older snapshot than the others, and one none.
func TestNewestSnapshotCounts(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 3)
		c.replicated()
		c.save("a", "b", "c")
		c.take(allowed, restoredKeys, 3)
		c.replicated()
		c.save("b", "c") // each partition is at two nodes, so one of these has it
		c.killAll()
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 6)
		c.exact(allowed, restoredKeys, 10)
	})
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 6)
		c.replicated()
		c.save("a", "b", "c")
		c.killAll()
		delete(c.disks, "b")
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 6)
		c.exact(allowed, restoredKeys, 10)
	})
}

// TestRestoredTwice restarts all nodes from what was restored and not used.
func TestRestoredTwice(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		allowed := make(map[ring.Key]int)
		c.start("a", "b")
		c.settled()
		c.take(allowed, restoredKeys, 6)
		c.replicated()
		c.save("a") // it has all: of what b owns it has copies
		c.killAll()
		for range 3 {
			c.start("a")
			pass(100 * time.Millisecond)
			c.save("a")
			c.killAll()
		}
		c.start("a", "b")
		c.settled()
		c.take(allowed, restoredKeys, 6)
		c.exact(allowed, restoredKeys, 10)
	})
}

// TestStaleSnapshotLoses restarts nodes one by one with snapshots from long ago: members have newer counters.
func TestStaleSnapshotLoses(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 1)
		c.replicated()
		c.save("a", "b", "c")
		c.take(allowed, restoredKeys, 5)
		for _, id := range []string{"a", "b", "c", "a"} {
			c.replicated()
			c.crash(id)
			c.registry.expire(id)
			c.start(id)
			c.settled()
			c.take(allowed, restoredKeys, 1)
		}
		c.replicated()
		c.crash("b")
		c.registry.expire("b")
		c.settled()
		c.start("b") // after others have owned all
		c.settled()
		c.take(allowed, restoredKeys, 4)
		c.exact(allowed, restoredKeys, 10)
	})
}

// TestGrantsOfAStandbySurvive stops the standbys after they have granted in place of the owner, which had stopped before.
func TestGrantsOfAStandbySurvive(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		c.take(allowed, restoredKeys, 3)
		c.replicated()
		c.saveAtEnd("a")
		provisional := 0
		for i := range restoredKeys {
			ok, source := c.checkAt(c.alive["b"], ownershipKey(i))
			if ok {
				allowed[ownershipKey(i)]++
			}
			if source == shard.Provisional {
				provisional++
			}
		}
		if provisional == 0 {
			t.Error("no standby has granted anything")
		}
		c.saveAtEnd("b", "c")
		for _, id := range []string{"a", "b", "c"} {
			c.registry.expire(id)
		}
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		c.take(allowed, restoredKeys, 8)
		c.exact(allowed, restoredKeys, 10)
	})
}

// TestRestoreRefuses gives Restore what no node has saved, and forgets what it has laid down.
func TestRestoreRefuses(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		k := c.launch("a", 1).owners
		for name, err := range map[string]error{
			"no term":      k.SnapshotCopies().Restore(0, SnapshotVersion{}, nil, nil),
			"partition 64": k.SnapshotCopies().Restore(64, SnapshotVersion{Term: 1, Sequence: 1}, nil, nil),
			"records":      k.SnapshotCopies().Restore(0, SnapshotVersion{Term: 1, Sequence: 1}, []byte{99}, nil),
			"grants":       k.SnapshotCopies().Restore(0, SnapshotVersion{Term: 1, Sequence: 1}, nil, []byte{5, 1}),
		} {
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		}
		if err := k.SnapshotCopies().Restore(0, SnapshotVersion{Term: 1, Sequence: 1}, nil, nil); err != nil {
			t.Error(err)
		}
		if _, _, _, ok := k.SnapshotCopies().Save(0, 0, nil); !ok {
			t.Error("what was restored is not saved again")
		}
		k.SnapshotCopies().Forget()
		if _, _, _, ok := k.SnapshotCopies().Save(0, 0, nil); ok {
			t.Error("what was forgotten is saved")
		}
	})
}
