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

// What a member says of another one's handover is what that one has said of itself in its last heartbeat: also while partitions move to it.
func TestHandoverStatusOfOthers(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		c.start("c")
		counts := func(s HandoverStatus) [3]int { return [3]int{s.Active, s.Wanted, s.Leaving} }
		const step = 10 * time.Millisecond
		var own [][3]int // of c, each step
		moving := 0
		for range 5 * time.Second / step {
			pass(step)
			own = append(own, counts(c.alive["c"].owners.HandoverStatus()))
			said := counts(c.alive["a"].owners.HandoverStatusOf("c"))
			if lately := own[max(0, len(own)-int((heartbeatEvery+callTimeout)/step)):]; said != [3]int{} && !slices.Contains(lately, said) {
				t.Fatalf("a says %v of c, which has said %v lately", said, lately)
			}
			if said[1] > 0 {
				moving++
			}
		}
		if last := own[len(own)-1]; moving == 0 || last[0] == 0 || last[1] > 0 || counts(c.alive["a"].owners.HandoverStatusOf("c")) != last {
			t.Errorf("a has said in %d steps that partitions move to c, which ends with %v", moving, last)
		}
	})
}
