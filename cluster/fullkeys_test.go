package cluster

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// A limit that is remembered as full costs an exchange more, and is forgotten when it has room.
func TestFullKeysAreForgotten(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		user, org := c.ownedBy(c.nodes[1], 0), c.ownedBy(c.nodes[2], 0)
		frames := func() int64 { return c.nodes[2].frames.Load() }
		both := func(cost int64) (g shard.Group, exchanges int64) {
			before := frames()
			g, _ = c.nodes[0].ask(t.Context(), take(user, 10, cost), take(org, 200, 1))
			return g, frames() - before
		}
		for _, tc := range []struct {
			cost      int64
			allowed   bool
			exchanges int64
		}{{1, true, 1}, {10, false, 1}, {10, false, 1}, {1, true, 2}, {1, true, 1}} {
			if g, n := both(tc.cost); g.Allowed != tc.allowed || n != tc.exchanges {
				t.Errorf("cost %d: allowed %v after %d exchanges, want %v after %d", tc.cost, g.Allowed, n, tc.allowed, tc.exchanges)
			}
		}
		if used := c.used(take(org, 200, 0)); used != 3 {
			t.Errorf("%d tokens are used, not 3", used)
		}
	})
}

// Keys that share a slot are not taken for each other, and what is remembered ends.
func TestFullKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fullKeys{started: time.Now()}
		denied := take(ring.Key{Hi: 7<<32 | 5}, 10, 1)
		denied.Source, denied.Decision.RetryAt = shard.Owner, int64(time.Second)
		other := ring.Key{Hi: 8<<32 | 5}
		f.learn(&denied, time.Now())
		if !f.likely(denied.Key, time.Now()) || f.likely(other, time.Now()) {
			t.Error("the wrong key is remembered")
		}
		time.Sleep(time.Second + fullUnit)
		if f.likely(denied.Key, time.Now()) {
			t.Error("it is remembered for too long")
		}
		denied.Source = shard.Undecided
		if f.learn(&denied, time.Now()); f.likely(denied.Key, time.Now()) {
			t.Error("what was not decided is remembered")
		}
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 1000 {
					denied := denied
					denied.Source = shard.Owner
					f.learn(&denied, time.Now())
					denied.Decision.Allowed = true
					f.learn(&denied, time.Now())
				}
			})
		}
		all.Wait()
	})
}
