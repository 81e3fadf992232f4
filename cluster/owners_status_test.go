package cluster

import (
	"slices"
	"testing"
	"time"
)

// Three of five nodes die at once. The others say which of them have not adopted the change of members that has begun, and after waiveAfter which were
// given up: these may still grant if they live. They are no doubt any more once they have started again.
func TestDoubts(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d", "e")
		c.settled()
		for _, id := range []string{"c", "d", "e"} {
			c.crash(id)
			c.registry.expire(id)
		}
		a := c.alive["a"].owners
		if missing, givenUp := a.Doubts(); len(missing) > 0 || len(givenUp) > 0 {
			t.Errorf("at once: missing %v, given up %v", missing, givenUp)
		}
		dead := func(lives []Life) bool {
			return len(lives) > 0 && !slices.ContainsFunc(lives, func(l Life) bool { return l.ID < "c" || l.Incarnation != 1 })
		}
		c.await("the missing ones are named", func() bool { missing, givenUp := a.Doubts(); return dead(missing) && len(givenUp) == 0 })
		pass(waiveAfter)
		c.await("those that were given up are named", func() bool { _, givenUp := a.Doubts(); return dead(givenUp) })
		c.start("c", "d", "e")
		c.settled()
		c.await("there is no doubt any more", func() bool { missing, givenUp := a.Doubts(); return len(missing)+len(givenUp) == 0 })
		pass(time.Second)
		if missing, givenUp := a.Doubts(); len(missing)+len(givenUp) > 0 {
			t.Errorf("at last: missing %v, given up %v", missing, givenUp)
		}
	})
}

// What a member says of another one's handover is what that one has said of itself in its last heartbeat: while partitions move to it, and once they have.
func TestHandoverStatusOfOthers(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		c.start("c")
		of := func(id string) HandoverStatus { return c.alive[id].owners.HandoverStatusOf("c") }
		c.await("a says that partitions move to c", func() bool { return of("a").Wanted > 0 })
		c.settled()
		c.replicated()
		for _, id := range []string{"a", "b"} {
			if own, said := of("c"), of(id); said.Active == 0 || said.Active != own.Active || said.Wanted != own.Wanted || said.Leaving != own.Leaving {
				t.Errorf("%s says %+v of c, which says %+v", id, said, own)
			}
		}
	})
}
