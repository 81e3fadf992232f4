package cluster

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"
)

// A node gets the events of all others, at most maxEvents of each, and names the members that do not answer. The router names the
// standby of each counter, which is not the owner.
func TestEventsOfOtherNodes(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		for _, id := range []string{"a", "b", "c"} {
			c.alive[id].owners.events = func(context.Context) (all []Event) {
				for i := range 2 * maxEvents {
					all = append(all, Event{At: time.Unix(int64(i), 5), Kind: "Rule changed", Target: "posts", Caller: "ana", Outcome: "OK", Tone: "good", Reason: "none", Node: id})
				}
				return all
			}
		}
		a := c.alive["a"]
		events, silent := a.owners.OtherEvents(t.Context())
		if len(events) != 2*maxEvents || len(silent) != 0 {
			t.Fatalf("%d events, silent %q", len(events), silent)
		}
		want := Event{At: time.Unix(7, 5), Kind: "Rule changed", Target: "posts", Caller: "ana", Outcome: "OK", Tone: "good", Reason: "none", Node: "b"}
		if !slices.ContainsFunc(events, func(e Event) bool { at := e.At.Equal(want.At); e.At = want.At; return at && e == want }) {
			t.Errorf("%+v is not among the events", want)
		}
		for i := range 20 {
			k := ownershipKey(i)
			if owner, standby := a.router.Owner(k), a.router.Standby(k); standby == "" || standby == owner {
				t.Errorf("key %d: owner %q, standby %q", i, owner, standby)
			}
		}
		c.crash("c")
		begun := time.Now()
		events, silent = a.owners.OtherEvents(t.Context())
		if took := time.Since(begun); len(events) != maxEvents || fmt.Sprint(silent) != "[c]" || took > askAllTimeout {
			t.Errorf("%d events, silent %q after %v", len(events), silent, took)
		}
	})
}
