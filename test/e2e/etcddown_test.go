package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// TestNodeRestartedWhileEtcdIsDown kills a node while there is no etcd, and starts it again: it
// serves by what it has kept, and etcd hears of it when it is back.
func TestNodeRestartedWhileEtcdIsDown(t *testing.T) {
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes[:2], &counts)
	etcd.Kill()
	pause(t, time.Second)
	victim := nodes[2]
	victim.Kill()
	began := time.Now()
	victim.Restart()
	t.Logf("serves %v after its start", time.Since(began).Round(10*time.Millisecond))
	health, err := victim.Client.Health(t.Context())
	if err != nil || !strings.Contains(strings.Join(health.GetReasons(), "\n"), "without etcd") {
		t.Errorf("%v %v: it does not say that it has started without etcd", health.GetReasons(), err)
	}
	stop()
	counts.Load().noErrors(t)

	counts.Store(new(tally))
	stop = load(nodes, &counts)
	defer stop()
	pause(t, 2*time.Second)
	without := newTally(&counts)
	without.noErrors(t)
	without.decided(t)
	if without.provisional.Load() == 0 {
		t.Error("no standby has decided in place of the node that was restarted")
	}
	etcd.Start()
	back := time.Now()
	process.Await(t, process.Patience, func() error {
		for _, n := range nodes {
			health, err := n.Client.Health(t.Context())
			if err != nil {
				return err
			}
			if health.GetDegraded() || len(health.GetMembers()) != len(nodes) {
				return fmt.Errorf("%s: %v", n.ID, health)
			}
		}
		return nil
	})
	t.Logf("all is well %v after etcd is back", time.Since(back).Round(10*time.Millisecond))
	process.AwaitMembers(t, process.Patience, nodes...)
	stop()
	counts.Load().noErrors(t)
	if log := nodes[0].Log() + nodes[1].Log(); strings.Contains(log, `"left":"`+victim.ID) {
		t.Error("the node was dropped from a view")
	}
}

// TestAllNodesRestartedWhileEtcdIsDown restarts every node, one after the other.
func TestAllNodesRestartedWhileEtcdIsDown(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
	awaitSettled(t, nodes...)
	etcd.Kill()
	for _, n := range nodes {
		n.Kill()
		n.Restart()
	}
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes, &counts)
	defer stop()
	pause(t, time.Second)
	without := newTally(&counts)
	without.noErrors(t)
	if without.failOpen.Load() > 0 || without.provisional.Load() == 0 {
		t.Errorf("%d decided by standbys, %d undecided", without.provisional.Load(), without.failOpen.Load())
	}
	etcd.Start()
	process.Await(t, process.Patience, func() error {
		for _, n := range nodes[0].Nodes().GetNodes() {
			if n.GetActive() == 0 || n.GetIncarnation() != 2 {
				return fmt.Errorf("%v", n)
			}
		}
		return nil
	})
	process.AwaitMembers(t, process.Patience, nodes...)
	stop()
	counts.Load().noErrors(t)
}

func TestEtcdDownForHalfAMinute(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	etcd, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
	var counts atomic.Pointer[tally]
	counts.Store(new(tally))
	stop := load(nodes, &counts)
	defer stop()

	etcd.Kill()
	pause(t, 30*time.Second)
	etcd.Start()
	// Every key is back under a lease when each node sees all of them ready; and
	// after more than a lease's time nothing has changed either.
	process.Await(t, process.Patience, func() error {
		for _, n := range nodes {
			for _, m := range n.Nodes().GetNodes() {
				if m.GetState() != weirv1.NodeState_NODE_STATE_READY {
					return fmt.Errorf("%s sees %s as %v", n.ID, m.GetId(), m.GetState())
				}
			}
		}
		return nil
	})
	pause(t, 7*time.Second)
	stop()
	c := counts.Load()
	c.noErrors(t)
	c.decided(t)
	process.AwaitMembers(t, process.Patience, nodes...)
	for _, n := range nodes {
		if left := n.MemberLeft(); left != "" {
			t.Errorf("%s: %s", n.ID, left)
		}
	}
}
