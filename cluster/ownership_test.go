package cluster

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/ring"
)

// TestWantedPartitionsAreLocatedOnce has a node own what it is to restore, and then stand by for it.
func TestWantedPartitionsAreLocatedOnce(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		k, p, _ := c.unheld()
		k.mu.Lock()
		v := *k.view
		k.mu.Unlock()
		v.Number++
		owner, standby := v.Ring.Tables()
		owner, standby = slices.Clone(owner), slices.Clone(standby)
		owner[p], standby[p] = standby[p], owner[p]
		var err error
		if v.Ring, err = ring.FromTables(owner, standby, len(v.Members)); err != nil {
			t.Fatal(err)
		}
		k.Adopt(&v)
		k.mu.Lock()
		k.parts[p].copy.whole = false
		k.mu.Unlock()
		wanted := k.createOrWant()
		if !slices.Contains(wanted, p) || !slices.Contains(k.bare(nil), p) {
			t.Fatalf("partition %d is not both wanted and without a copy", p)
		}
		if slices.Contains(k.bare(wanted), p) {
			t.Errorf("partition %d is looked for twice", p)
		}
	})
}

// TestBelievedOwnerIsForgotten forgets who was believed to hold a partition once that has said that it does not.
func TestBelievedOwnerIsForgotten(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		k := c.alive["a"].ownership
		k.mu.Lock()
		was := k.parts[1]
		k.parts[1].from, k.parts[1].tenure.state = "b", absent
		k.mu.Unlock()
		for _, tc := range []struct {
			holding peerv1.ReplicaState
			want    string
		}{{peerv1.ReplicaState_REPLICA_STATE_PENDING, "b"}, {peerv1.ReplicaState_REPLICA_STATE_ABSENT, ""}} {
			w := whereabouts{partition: 1, from: "b"}
			k.mu.Lock()
			w.note(k.peers["b"], &peerv1.Located{State: tc.holding}, k.ownParty, k.view)
			k.mu.Unlock()
			k.noteCopies([]whereabouts{w}, false)
			k.mu.Lock()
			if got := k.parts[1].from; got != tc.want {
				t.Errorf("after %v it is believed to be with %q", tc.holding, got)
			}
			k.mu.Unlock()
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// TestCopyAt has a node know that it has itself the copy that a new standby lacks, whose clients would be told otherwise that no node decides.
func TestCopyAt(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].ownership
		k.mu.Lock()
		was := k.parts[1]
		k.mu.Unlock()
		for _, tc := range []struct {
			state        tenureState
			whole, fresh bool
			at, want     string
		}{
			{absent, true, true, "", "a"}, {absent, true, true, "b", "b"}, {absent, true, false, "", ""}, {absent, false, true, "", ""}, {active, true, true, "", ""},
		} {
			k.mu.Lock()
			pt := &k.parts[1]
			pt.tenure.state, pt.copy.whole, pt.fresh, pt.copyAt.id = tc.state, tc.whole, tc.fresh, tc.at
			k.mu.Unlock()
			if got := k.CopyAt(1); got != tc.want {
				t.Errorf("%+v: %q", tc, got)
			}
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// TestOwnerOfALostPartition has an owner that was restarted, and has nothing of a partition, name itself: so
// its standby is asked. Before, or with a copy, it knows of no other node.
func TestOwnerOfALostPartition(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a")
		c.settled()
		k := c.alive["a"].ownership
		k.mu.Lock()
		was := k.parts[1]
		k.mu.Unlock()
		for _, tc := range []struct {
			restarted bool
			term      Term
			want      string
		}{{false, 0, ""}, {true, 0, "a"}, {true, 1, ""}} {
			k.mu.Lock()
			pt := &k.parts[1]
			pt.tenure.state, pt.restarted, pt.copy.term = absent, tc.restarted, tc.term
			k.mu.Unlock()
			if id, known := k.OwnerOf(1); id != tc.want || known != (id != "") {
				t.Errorf("restarted %v, a copy of %d: %q, %v", tc.restarted, tc.term, id, known)
			}
		}
		k.mu.Lock()
		k.parts[1] = was
		k.mu.Unlock()
	})
}

// A caller with a newer view, which this node does not reach, hears from it while it waits.
func TestHeartbeatOfAnUnreachableCaller(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		goOn := c.alive["b"].halt()
		began := time.Now()
		resp, err := c.alive["a"].ownership.server().Heartbeat(t.Context(), &peerv1.HeartbeatRequest{Caller: &peerv1.Caller{Version: connVersion, Cluster: 1, Id: "b", Address: "b:1", View: 99, ToId: "a"}})
		if took := time.Since(began); err != nil || resp.GetView() == 0 || took > callTimeout/2 {
			t.Errorf("%v after %v: %v", resp, took, err)
		}
		goOn()
	})
}
