package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Without etcd all goes on, and when it is back no member is removed.
func TestEtcdDown(t *testing.T) {
	notInBrief(t)
	shareMachine(t)
	const lease = 5 * time.Second
	s := newStage(t, 3)
	f := s.startTraffic()
	wait(calm())
	s.settle(healed)
	base := f.report("before", time.Time{})

	s.etcd.Kill()
	stopped := time.Now()
	wait(brief(100*time.Second, 4*time.Second))
	away := f.report("without etcd", stopped)
	checkLatency(t, base, away)
	victim := s.nodes[1]
	f.without(victim)
	victim.Kill()
	killed := time.Now()
	victim.Restart()
	f.with(victim)
	wait(brief(20*time.Second, 3*time.Second))
	f.report("since "+victim.ID+" was restarted without etcd", killed)
	s.etcd.Start()
	back := time.Now()
	process.Await(t, hung, func() error {
		for _, n := range s.nodes {
			for _, m := range n.Nodes().GetNodes() {
				if m.GetState() != weirv1.NodeState_NODE_STATE_READY {
					return fmt.Errorf("%s sees %s as %v", n.ID, m.GetId(), m.GetState())
				}
			}
		}
		return nil
	})
	f.checkPromise("until all nodes have registered again", healed, back)
	t.Logf("all nodes have registered again after %v", time.Since(back).Round(time.Millisecond))
	wait(lease + calm())
	s.settle(healed)
	for _, n := range s.nodes {
		if left := n.MemberLeft(); left != "" {
			t.Errorf("%s: %s", n.ID, left)
		}
	}
	f.report("since etcd is back", back)
	f.finish()
	f.noErrors()
	f.ledger.noneOver(t, f.afterDeath(killed))
}
