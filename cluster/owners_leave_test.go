package cluster

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// endWithFarewell ends a node as one that is told to stop without the registry: it leaves its partitions to its standbys, and stays registered as it was.
func (c *ownershipCluster) endWithFarewell(id string) {
	n := c.alive[id]
	flushing, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.owners.Flush(flushing)
	n.conns.Close()
	n.server.Stop()
	n.owners.SayFarewell()
	c.crash(id)
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
		c.endWithFarewell("a")
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

// TestFarewellOfAnother has a member that claims the farewell of the node that it calls.
func TestFarewellOfAnother(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		a := c.alive["a"]
		a.owners.hearFarewells(wireFarewells([]view.Life{a.owners.life(), {ID: "stranger", Incarnation: 1}}))
		if left := a.owners.Farewells(); len(left) > 0 {
			t.Errorf("a node takes %v for ended, which is itself or is named by no view", left)
		}
	})
}
