package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestFlushWaitsOnlyForItsStandby has a standby go on at once although another one is not reached.
func TestFlushWaitsOnlyForItsStandby(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		a, b := c.alive["a"], c.alive["b"]
		goOn := c.alive["c"].halt()
		c.await("c is not reached", func() bool { return !b.router.Reaches("c") && !a.router.Reaches("c") })
		flushed := make(chan struct{})
		go func() { defer close(flushed); b.owners.Flush(t.Context()) }()
		pass(shard.Brief + 20*time.Millisecond) // until then it decides
		asked := 0
		for i := range 100 {
			p := ownershipKey(i).Partition(uint32(ownershipRing.Partitions))
			if v := a.router.View(); v.Members[v.Ring.Owner(p)].ID != "b" || v.Members[v.Ring.Standby(p)].ID != "a" {
				continue
			}
			asked++
			if ok, source := c.checkAt(a, ownershipKey(i)); !ok || source != shard.Provisional {
				t.Errorf("key %d: allowed %v by %d", i, ok, source)
			}
		}
		if asked == 0 {
			t.Error("there is no such key")
		}
		<-flushed
		goOn()
	})
}

// TestFlush ends a node that cannot hand over anything, because etcd is unreachable.
func TestFlush(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		pass(2 * feedEvery)
		c.take(allowed, keys, 7)
		b := c.alive["b"]
		b.owners.Flush(t.Context())
		c.take(allowed, keys, 1)
		if s := b.owners.HandoverStatus(); s.Active > 0 {
			t.Errorf("%d partitions are still decided by it", s.Active)
		}
		c.crash("b")
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// TestFlushWithoutAStandby ends a node that alone has some partitions. It decides there until it has ended: its standby has died, and etcd is
// unreachable, so that no view names another one; or a view names none yet.
func TestFlushWithoutAStandby(t *testing.T) {
	for name, tc := range map[string]struct {
		die    func(c *ownershipCluster)
		isNone bool // the view names no standby
	}{
		"it has died": {die: func(c *ownershipCluster) {
			c.loseRegistry()
			c.crash("c")
			pass(time.Second)
		}},
		"the view names none": {isNone: true, die: func(c *ownershipCluster) {
			c.crash("c")
			c.registry.expire("c")
			c.await("c was dropped", func() bool { return !c.alive["b"].owners.View().IsMember(Life{ID: "c", Incarnation: 1}) })
			c.registry.mu.Lock()
			c.registry.down = true
			c.registry.mu.Unlock()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c")
				c.settled()
				c.replicated()
				b, keys := c.alive["b"], c.keysOf("b", "c", 20)
				tc.die(c)
				b.owners.Flush(t.Context())
				pass(100 * time.Millisecond)
				for i, key := range keys {
					if isNone := b.owners.View().Partitions[key.Partition(uint32(ownershipRing.Partitions))].Standby == (Life{}); isNone != tc.isNone {
						t.Fatalf("key %d: no standby %v, want %v", i, isNone, tc.isNone)
					}
					if ok, source := c.checkAt(c.alive["a"], key); !ok || source != shard.Provisional {
						t.Errorf("key %d: allowed %v by %d", i, ok, source)
					}
				}
			})
		})
	}
}
