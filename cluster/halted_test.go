package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// whileHalted starts nodes and halts b, one of them, which owns some of the keys. It has the others asked for three tokens of
// each key meanwhile. Then it has b asked, as soon as it goes on, and all the others, until
// all of them deny. It returns how much was allowed of each key, of which there are 10.
func (c *ownershipCluster) whileHalted(nodes, keys int, halt time.Duration, meanwhile func(b *ownershipNode)) (allowed map[ring.Key]int) {
	c.t.Helper()
	allowed = make(map[ring.Key]int)
	for i := range nodes {
		c.start(string(rune('a' + i)))
		c.settled()
	}
	b := c.oneSided()
	var others []*ownershipNode
	for _, id := range slices.Sorted(maps.Keys(c.alive)) {
		if id != b.id {
			others = append(others, c.alive[id])
		}
	}
	c.take(allowed, keys, 4)
	c.replicated()
	synctest.Wait() // nothing is under way
	goOn := b.halt()
	pass(halt - 100*time.Millisecond)
	count := func(n *ownershipNode, key ring.Key) (ok bool) {
		ok, source := c.checkAt(n, key)
		switch {
		case source != shard.Undecided:
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
			count(others[i%len(others)], ownershipKey(i))
		}
	}
	if meanwhile != nil {
		meanwhile(b)
	}
	goOn()
	for range 4 {
		for i := range keys {
			count(b, ownershipKey(i))
			count(others[i%len(others)], ownershipKey(i))
		}
	}
	c.settled()
	for i := range keys {
		for count(b, ownershipKey(i)) {
		}
	}
	return allowed
}

// oneSided returns a node that stands by for one that does not stand by for it, or node b if there is none.
func (c *ownershipCluster) oneSided() *ownershipNode {
	view := c.alive["b"].router.table.Load().view
	standsBy := make(map[[2]int]bool) // the first for the second
	for p := range view.Ring.Partitions() {
		standsBy[[2]int{view.Ring.Standby(p), view.Ring.Owner(p)}] = true
	}
	for i, m := range view.Members {
		for j := range view.Members {
			if i != j && standsBy[[2]int{i, j}] && !standsBy[[2]int{j, i}] {
				return c.alive[m.ID]
			}
		}
	}
	return c.alive["b"]
}

// TestHaltedOwnerGathersGrants halts an owner for less and for longer than its decision lease lasts
// without it: before it admits again it knows what its standbys have granted. It stands by for keys of the others, too,
// and grants nothing of these, although it hears late that their owners are there.
func TestHaltedOwnerGathersGrants(t *testing.T) {
	for _, tc := range []struct {
		nodes       int
		halt, hears time.Duration
	}{
		{3, 300 * time.Millisecond, 0},
		{3, time.Second, 0},
		{3, 5 * time.Second, 0},
		{3, time.Second, 5 * time.Millisecond},
		{3, 5 * time.Second, 5 * time.Millisecond},
		{8, time.Second, 5 * time.Millisecond}, // it stands by for one that does not stand by for it
	} {
		t.Run(fmt.Sprintf("%d nodes, %v, heard after %v", tc.nodes, tc.halt, tc.hears), func(t *testing.T) {
			inOwners(t, func(_ *testing.T, c *ownershipCluster) {
				c.hears = tc.hears
				for key, n := range c.whileHalted(tc.nodes, 100, tc.halt, nil) {
					if n != 10 { // what reached the owner while it was halted is not counted: its askers have gone elsewhere
						c.t.Errorf("key %v: %d were allowed of 10", key, n)
					}
				}
			})
		})
	}
}

// TestHaltedStandby halts a node while the others use up all keys. It stands by for some of them, has a copy from before the halt, and is asked for them
// as soon as it goes on, before it has heard anything: it grants nothing of them.
func TestHaltedStandby(t *testing.T) {
	for _, halt := range []time.Duration{300 * time.Millisecond, time.Second, 5 * time.Second} {
		t.Run(halt.String(), func(t *testing.T) {
			inOwners(t, func(_ *testing.T, c *ownershipCluster) {
				c.hears = 5 * time.Millisecond
				allowed := make(map[ring.Key]int)
				for _, id := range []string{"a", "b", "c"} {
					c.start(id)
					c.settled()
				}
				const keys = 100
				c.take(allowed, keys, 4)
				c.replicated()
				synctest.Wait()
				b, others := c.alive["b"], []*ownershipNode{c.alive["a"], c.alive["c"]}
				goOn := b.halt()
				pass(halt)
				for i := range 8 * keys {
					if ok, _ := c.checkAt(others[i%2], ownershipKey(i%keys)); ok {
						allowed[ownershipKey(i%keys)]++
					}
				}
				goOn()
				for i := range keys {
					key := ownershipKey(i)
					if b.router.Standby(key) != b.id {
						continue // nor is one asked for that it owns, which would wait until it may decide
					}
					if ok, source := c.checkAt(b, key); ok && source != shard.Undecided {
						allowed[key]++
					}
				}
				c.settled()
				for key, n := range allowed {
					if n > 10 {
						t.Errorf("key %v: %d were allowed of 10", key, n)
					}
				}
			})
		})
	}
}
