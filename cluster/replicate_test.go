package cluster

import (
	"io"
	"slices"
	"testing"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestFlushWaitsOnlyForItsStandby has a standby go on at once although another one is not reached.
func TestFlushWaitsOnlyForItsStandby(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		a, b := c.alive["a"], c.alive["b"]
		goOn := c.alive["c"].halt()
		c.await("c is not reached", func() bool { return !b.router.Reaches("c") && !a.router.Reaches("c") })
		flushed := make(chan struct{})
		go func() { defer close(flushed); b.Flush(t.Context()) }()
		pass(urgentEvery)
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
		goOn()
		<-flushed
	})
}

// TestFlush ends a node that cannot hand over anything, because etcd is unreachable.
func TestFlush(t *testing.T) {
	inBoth(t, func(t *testing.T, c *ownershipCluster) {
		const keys = 100
		allowed := make(map[ring.Key]int)
		c.start("a", "b", "c")
		c.settled()
		pass(2 * replicateEvery)
		c.take(allowed, keys, 7)
		b := c.alive["b"]
		b.Flush(t.Context())
		c.take(allowed, keys, 1)
		if s := b.HandoverStatus(); s.Active > 0 {
			t.Errorf("%d partitions are still decided by it", s.Active)
		}
		c.crash("b")
		c.take(allowed, keys, 5)
		c.exact(allowed, keys, 10)
	})
}

// brokenStream is a stream that the other side has left.
type brokenStream struct {
	grpc.ServerStreamingServer[peerv1.PullResponse]
}

func (brokenStream) Send(*peerv1.PullResponse) error { return io.ErrClosedPipe }

// TestCopyThatDoesNotArrive keeps what a copy is worth, and what was granted from it.
func TestCopyThatDoesNotArrive(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].ownership
		k.mu.Lock()
		k.parts[1].copy.whole = true
		k.enclose(1, []shard.Grant{grantOf(1, 3)})
		k.mu.Unlock()
		if err := k.giveCopy(brokenStream{}, 1, party{}); err == nil {
			t.Error("it is said to have arrived")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.parts[1].copy.whole || len(k.outbox[1].grants) != 1 {
			t.Errorf("copy %+v, %d grants", k.parts[1].copy, len(k.outbox[1].grants))
		}
		key := ownershipKey(0)
		for i := 1; key.Partition(uint32(ownershipRing.Partitions)) != 1; i++ {
			key = ownershipKey(i)
		}
		k.Shard.Seal(1)
		g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit, Cost: 1}}, Provisional: true}}
		if k.Shard.Decide(g); g[0].Takes[0].Source != shard.Provisional {
			t.Errorf("nothing is decided from it any more: %+v", g[0])
		}
	})
}

// What was not cleared for grants of others is a copy still if the better one does not arrive.
func TestBetterCopyThatDoesNotArrive(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		c.replicated()
		k := c.alive["a"].ownership
		k.mu.Lock()
		p := slices.IndexFunc(k.parts, func(h partState) bool { return h.tenure.state == absent && h.copy.whole })
		had, b := k.parts[p].copy, k.peers["b"]
		k.mu.Unlock()
		c.crash("b")
		if err := k.fetchCopy(t.Context(), &whereabouts{partition: uint32(p), best: b, grantors: []*otherMember{b}}); err == nil {
			t.Error("it has arrived")
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if got := k.parts[p].copy; got != had {
			t.Errorf("the copy is %+v, was %+v", got, had)
		}
	})
}
