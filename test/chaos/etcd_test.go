package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Without etcd all goes on, and when it is back nobody is removed.
func TestEtcdAway(t *testing.T) {
	const lease = 5 * time.Second
	s := newStage(t, 3)
	f := startTraffic(t, s.nodes...)
	wait(calm)
	view, _ := s.settle(healed)
	base := f.report("before", time.Time{})

	s.etcd.Kill()
	stopped := time.Now()
	wait(brief(2*time.Minute, 15*time.Second))
	away := f.report("without etcd", stopped)
	checkLatency(t, base, away)
	t.Run("a node restarted meanwhile", func(t *testing.T) {
		t.Skip("a node cannot start without etcd yet")
	})
	s.etcd.Start()
	back := time.Now()
	process.Await(t, 15*time.Second, func() error {
		for _, n := range s.nodes {
			for _, m := range n.Nodes().GetNodes() {
				if m.GetState() != weirv1.NodeState_NODE_STATE_READY {
					return fmt.Errorf("%s sees %s as %v", n.ID, m.GetId(), m.GetState())
				}
			}
		}
		return nil
	})
	t.Logf("all nodes have registered again after %v", time.Since(back).Round(time.Millisecond))
	wait(lease + calm)
	if now, _ := s.settle(healed); now != view {
		t.Errorf("view %d, it was %d before etcd went away", now, view)
	}
	f.report("since etcd is back", back)
	f.finish()
	f.noErrors()
	f.exact()
}
