package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// TestNodeRestartedWhileEtcdIsAway kills a node while there is no etcd, and starts it again: it
// serves by what it has kept, and etcd hears of it when it is back.
func TestNodeRestartedWhileEtcdIsAway(t *testing.T) {
	etcd, nodes := startThree(t, rulesPerYear(1_000_000), "--peer-timeout", "4s")
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
	process.Await(t, 15*time.Second, func() error {
		for _, n := range nodes {
			health, err := n.Client.Health(t.Context())
			if err != nil || health.GetDegraded() || len(health.GetMembers()) != len(nodes) {
				return fmt.Errorf("%s: %v %v", n.ID, health, err)
			}
		}
		return nil
	})
	t.Logf("all is well %v after etcd is back", time.Since(back).Round(10*time.Millisecond))
	process.AwaitMembers(t, 5*time.Second, nodes...)
	stop()
	counts.Load().noErrors(t)
	if log := nodes[0].Log() + nodes[1].Log(); strings.Contains(log, `"left":"`+victim.ID) {
		t.Error("the node was dropped from a view")
	}
}
