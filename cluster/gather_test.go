package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// whileHalted halts b, which owns some of the keys, and has the others asked for three tokens of
// each key meanwhile. Then it has b asked, as soon as it goes on, and all the others, until
// everybody denies. It returns how much was allowed of each key, of which there are 10.
func (c *ownershipCluster) whileHalted(keys int, halt time.Duration, meanwhile func(b *ownershipNode)) (allowed map[ring.Key]int) {
	c.t.Helper()
	allowed = make(map[ring.Key]int)
	c.start("a", "b", "c")
	c.settled()
	c.take(allowed, keys, 4)
	c.replicated()
	synctest.Wait() // nothing is under way
	b := c.alive["b"]
	goOn := b.halt()
	time.Sleep(halt - 100*time.Millisecond)
	others := []*ownershipNode{c.alive["a"], c.alive["c"]}
	count := func(n *ownershipNode, key ring.Key) (ok bool) {
		ok, source := c.checkAt(n, key)
		switch {
		case source != shard.Unanswered:
		case n == b: // which does not reach the others yet
			return false
		default:
			c.t.Errorf("%s has allowed a take that no node has decided", n.id)
		}
		allowed[key] += int(boolByte(ok))
		return ok
	}
	for i := range keys {
		for range 3 {
			count(others[i%2], ownershipKey(i))
		}
	}
	if meanwhile != nil {
		meanwhile(b)
	}
	goOn()
	for range 4 {
		for i := range keys {
			count(b, ownershipKey(i))
			count(others[i%2], ownershipKey(i))
		}
	}
	c.settled()
	for i := range keys {
		for count(b, ownershipKey(i)) {
		}
	}
	return allowed
}

// TestHaltedOwnerGathersGrants halts an owner for less and for longer than its decision lease lasts
// without it: before it admits again it knows what its standbys have granted.
func TestHaltedOwnerGathersGrants(t *testing.T) {
	for _, halt := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second} {
		t.Run(halt.String(), func(t *testing.T) {
			inOwnership(t, func(_ *testing.T, c *ownershipCluster) {
				for key, n := range c.whileHalted(100, halt, nil) {
					if n != 10 { // what reached the owner while it was halted is not counted: its askers have gone elsewhere
						c.t.Errorf("key %v: %d were allowed of 10", key, n)
					}
				}
			})
		})
	}
}

// TestHaltedOwnerWithoutGather is the same without the rule: the owner believes that it has
// looked at the clock all the time. If nothing is over then, the test above shows nothing.
func TestHaltedOwnerWithoutGather(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		allowed := c.whileHalted(100, time.Second, func(b *ownershipNode) {
			b.ownership.mu.Lock()
			defer b.ownership.mu.Unlock()
			b.ownership.lease.looked = time.Now()
			b.shard.SetDecisionLease(b.ownership.lease.until())
		})
		over := 0
		for _, n := range allowed {
			over += max(0, n-10)
		}
		if over == 0 {
			t.Error("nothing was allowed beyond the limit")
		}
	})
}
