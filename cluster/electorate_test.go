package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/ring"
)

// Where more than half of the members die at once, what they had is decided from copies: until a word of an operator, or until 30 s are over.
// Health names the nodes that are waited for, and then those that were given up.
func TestMoreThanHalfDie(t *testing.T) {
	for _, spoken := range []bool{false, true} {
		t.Run(fmt.Sprintf("spoken %v", spoken), func(t *testing.T) {
			inOwnership(t, func(t *testing.T, c *ownershipCluster) {
				const keys = 100
				allowed := make(map[ring.Key]int)
				c.start("a", "b", "c")
				c.settled()
				c.take(allowed, keys, 7)
				c.replicated()
				a := c.alive["a"]
				c.crash("b")
				c.crash("c")
				time.Sleep(6 * time.Second)
				c.registry.expire("b", "c")
				time.Sleep(goneGrace + doubtAfter + 2*recheck)
				held := a.HandoverStatus().Active
				if v := a.router.View(); len(v.Members) != 2 || held >= ownershipRing.Partitions {
					t.Errorf("%s of view %d, %d partitions are held", formatMembers(v.Members), v.Number, held)
				}
				bc := []Life{{"b", 1}, {"c", 1}}
				if missing, givenUp := a.Doubts(); !slices.Equal(missing, bc) || len(givenUp) > 0 {
					t.Errorf("missing %v, given up %v", missing, givenUp)
				}
				if allowed, source := c.checkAt(a, ownershipKey(0)); !allowed {
					t.Errorf("denied by %v", source)
				}
				if spoken {
					for _, id := range []string{"b", "c"} {
						if _, err := a.membership.Remove(t.Context(), id); err != nil {
							t.Fatal(err)
						}
						synctest.Wait()
					}
				} else {
					time.Sleep(waiveAfter)
				}
				c.settled()
				missing, givenUp := a.Doubts()
				switch waived := testutil.ToFloat64(a.ownership.metrics.waived); {
				case spoken && (len(missing)+len(givenUp) > 0 || waived != 0):
					t.Errorf("missing %v, given up %v, %v waived", missing, givenUp, waived)
				case !spoken && (len(missing) > 0 || !slices.Equal(givenUp, bc) || waived != 1):
					t.Errorf("missing %v, given up %v, %v waived", missing, givenUp, waived)
				}
				if told := strings.Contains(c.log.String(), "fewer than half have adopted"); told == spoken {
					t.Errorf("told: %v\n%s", told, c.log.String())
				}
				if !spoken {
					c.start("b", "c")
					c.settled()
					if _, givenUp := a.Doubts(); len(givenUp) > 0 {
						t.Errorf("given up, and back: %v", givenUp)
					}
				}
			})
		})
	}
}

// What a member has adopted is known also where it is not reached: others say it.
func TestAdoptionsArePassedOn(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		a, far := c.alive["a"], c.alive["c"]
		c.cut(&a.testNode, &far.testNode)
		c.cut(&far.testNode, &a.testNode)
		c.start("d") // a view that a and c do not hear of from each other
		time.Sleep(2*joinBatch + 3*heartbeatEvery)
		synctest.Wait()
		v := a.router.View()
		a.ownership.mu.Lock()
		known := a.ownership.adopted["c"]
		a.ownership.mu.Unlock()
		if len(v.Members) != 4 || known != (adoption{1, v.Number}) {
			t.Errorf("of view %d, %s: %v is known of c", v.Number, formatMembers(v.Members), known)
		}
	})
}

// A node that has left answers no heartbeats: it may end before it hears of a later view.
func TestNoWitnessAfterLeaving(t *testing.T) {
	inOwnership(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b")
		c.settled()
		before := time.Now()
		c.alive["b"].Depart()
		time.Sleep(3 * heartbeatEvery)
		a := c.alive["a"].ownership
		a.mu.Lock()
		heard := a.lease.heard["b"]
		a.mu.Unlock()
		if heard.After(before) {
			t.Errorf("b has answered %v after it had left", heard.Sub(before))
		}
	})
}

// Adoptions only rise, in any order they arrive.
func TestAdoptions(t *testing.T) {
	a := make(adoptions)
	for _, tc := range []struct {
		life Life
		view uint64
		news bool
	}{
		{Life{"a", 1}, 5, true}, {Life{"a", 1}, 5, false}, {Life{"a", 1}, 4, false}, {Life{"a", 1}, 6, true},
		{Life{"a", 2}, 3, true}, {Life{"a", 1}, 9, false}, {Life{"a", 2}, 4, true},
		{Life{"b", 0}, 4, false}, {Life{"b", 1}, 0, false}, {Life{"b", uncounted + 7}, 4, false},
	} {
		if got := a.note(tc.life, tc.view); got != tc.news {
			t.Errorf("%v adopts %d: %v", tc.life, tc.view, got)
		}
	}
	v := &View{Number: 7, Members: []Member{{ID: "a", Incarnation: 2}}, Changed: 7, Before: []Life{{"a", 2}, {"c", 1}}, Ended: []Life{{"c", 1}}}
	a.note(Life{"x", 1}, 7)
	if a.keep(v); len(a) != 1 || a["a"] != (adoption{2, 4}) {
		t.Errorf("%v", a)
	}
	if missing := a.missing(v); !a.confirmed(v) || !slices.Equal(missing, []Life{{"a", 2}}) {
		t.Errorf("missing %v of two, of which one has ended", missing)
	}
}
