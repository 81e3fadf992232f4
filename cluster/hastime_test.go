package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/shard"
)

// While an owner is flooded, the batches that HasTime refuses are those of which Decide leaves checks overloaded. Others are not refused: those for other
// nodes, shadows, and all once the flood is over.
func TestHasTime(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		const times = 62
		r := c.nodes[0].router
		takesOf := func(n *testNode, shadow bool) (takes []shard.Take) {
			for i := range maxSample {
				one := take(c.ownedBy(n, i), 1_000_000, 1)
				one.Shadow = shadow
				takes = append(takes, one)
			}
			return takes
		}
		there := takesOf(c.nodes[2], false)
		batch := func(there []shard.Take) (overloaded bool) {
			groups := make([]shard.Group, times*len(there))
			for i := range groups {
				groups[i].Takes = []shard.Take{there[i%len(there)]}
			}
			r.Decide(t.Context(), groups)
			return slices.ContainsFunc(groups, func(g shard.Group) bool { return g.Takes[0].Source == shard.Overloaded })
		}
		if !r.HasTime(there, times) {
			t.Error("no time at rest")
		}
		c.nodes[2].perTake.Store(int64(10 * time.Microsecond))
		c.flood(10, 20*time.Millisecond) // the pace becomes known
		over := make(chan *outcomes)
		go func() { over <- c.flood(200, 200*time.Millisecond) }()
		refused := 0
		for i := range 100 {
			time.Sleep(time.Millisecond)
			synctest.Wait() // no answer comes between both looks
			if !r.HasTime(takesOf(c.nodes[1], false), times) || !r.HasTime(takesOf(c.nodes[0], false), times) || !r.HasTime(takesOf(c.nodes[2], true), times) {
				t.Error("no time for checks that are not for the flooded node, or shadows")
			}
			some := there[:1+i%16]
			if r.HasTime(some, times) {
				continue
			}
			if refused++; !batch(some) {
				t.Errorf("no time for %d times %d takes, and nothing was overloaded", times, len(some))
			}
		}
		<-over
		t.Logf("no time at %d of 100 instants", refused)
		if refused < 10 {
			t.Errorf("no time at %d of 100 instants only", refused)
		}
		time.Sleep(crowdedFor)
		if !r.HasTime(there, times) {
			t.Error("no time after the flood")
		}
	})
}

// A batch has room if half of what its part for a conn amounts to has it.
func TestHasTimeEstimates(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		r := c.nodes[0].router
		table := r.table.Load()
		to, _ := c.view.Index(c.nodes[2].id)
		there := table.conn(to, c.ownedBy(c.nodes[2], 0))
		var takes []shard.Take // 16 on that conn
		for i := 0; len(takes) < 16; i++ {
			if k := c.ownedBy(c.nodes[2], i); table.conn(to, k) == there {
				takes = append(takes, take(k, 10, 1))
			}
		}
		for _, tc := range []struct {
			takes, times, room int
			has                bool
		}{{16, 62, 496, true}, {16, 62, 495, false}, {1, 62, 31, true}, {1, 62, 30, false}, {0, 62, 0, true}} {
			there.mu.Lock()
			there.backlog = there.pacer.most() - tc.room
			there.mu.Unlock()
			there.crowded.Store(int64(time.Since(there.base)) + 1)
			if has := r.HasTime(takes[:tc.takes], tc.times); has != tc.has {
				t.Errorf("%d times %d takes with room for %d: %v, want %v", tc.times, tc.takes, tc.room, has, tc.has)
			}
			there.mu.Lock()
			there.backlog = 0
			there.mu.Unlock()
		}
	})
}
