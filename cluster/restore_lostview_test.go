package cluster

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/ring"
)

// loseView has the registry forget the view, as an operator does who removes it, or bring an older one back, as a backup does.
func (r *fakeRegistry) loseView(back int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view, r.routing, r.revision = nil, nil, r.revision+1
	if back > 0 {
		r.view = r.views[len(r.views)-1-back]
		r.routing, _ = RoutingView(r.view)
	} else {
		r.revision = 0
	}
}

// TestViewIsLostWhileAllNodesAreStopped restarts all nodes once views of their snapshots are lost. The first to start has older counters than the last.
func TestViewIsLostWhileAllNodesAreStopped(t *testing.T) {
	for _, back := range []int{0, 1, 2} {
		for _, apart := range []time.Duration{0, 700 * time.Millisecond, 4 * time.Second} {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				allowed := make(map[ring.Key]int)
				c.stopOneByOne(allowed, back)
				for _, id := range []string{"a", "b", "c"} {
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

// TestWaitForNodesThatWereStopped restarts nodes of three with their snapshots, of which one stays away. The others wait for it if all were stopped, and
// not if one of them lives.
func TestWaitForNodesThatWereStopped(t *testing.T) {
	for _, tc := range []struct {
		stopped, back []string
		least, most   time.Duration
	}{
		{[]string{"a", "b", "c"}, []string{"a", "b"}, 10 * time.Second, 14 * time.Second},
		{[]string{"a", "b"}, []string{"a"}, 0, 9 * time.Second},
	} {
		inOwners(t, func(t *testing.T, c *ownershipCluster) {
			c.start("a", "b", "c")
			c.settled()
			c.save("a", "b", "c")
			for _, id := range tc.stopped {
				c.crash(id)
				c.registry.expire(id)
			}
			began := time.Now()
			c.start(tc.back...)
			for !c.isSettled() && time.Since(began) < 20*time.Second {
				pass(100 * time.Millisecond)
			}
			if took := time.Since(began); took < tc.least || took > tc.most {
				t.Errorf("of %v are back %v: partitions are settled %v later, not after %v to %v", tc.stopped, tc.back, took, tc.least, tc.most)
			}
		})
	}
}
