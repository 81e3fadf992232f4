package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Where the owner is dead, its standby decides at once, at every node, and counts what
// it grants by itself.
func TestStandbyDecidesForADeadOwner(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.kill(c.nodes[1])
		synctest.Wait()
		for i := range 12 {
			g, took := c.nodes[[]int{0, 2}[i%2]].ask(t.Context(), take(k, 10, 1))
			if g.Takes[0].Source != shard.Provisional || g.Allowed != (i < 10) || took != 0 {
				t.Errorf("take %d: %+v after %v", i, g, took)
			}
		}
		if l.copies[2][k] != 10 || l.counts[k] != 0 {
			t.Errorf("%v counted from copies, %d by the owner", l.copies, l.counts[k])
		}
		c.serve(c.nodes[1])
		time.Sleep(2 * probeEvery)
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Owner || l.counts[k] != 1 {
			t.Errorf("the owner is back: %+v", g)
		}
	})
}

// Callers under way when the owner dies are answered at once, too.
func TestStandbyAnswersChecksUnderWay(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		resume := c.nodes[1].stall()
		type answer struct {
			g    shard.Group
			took time.Duration
		}
		answers := make(chan answer)
		go func() {
			g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
			answers <- answer{g, took}
		}()
		synctest.Wait() // the request is with the owner
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			c.kill(c.nodes[1])
		}()
		if a := <-answers; a.g.Takes[0].Source != shard.Provisional || a.took != 0 {
			t.Errorf("%+v", a)
		}
		resume() // or its server would not stop
		<-killed
	})
}

// An owner that is silent costs an attempt as long as no node knows, and then nothing.
func TestStandbyDecidesForASilentOwner(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		resume := c.nodes[1].stall()
		defer resume()
		for i := range tripAfter + 1 {
			g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
			want := []time.Duration{
				DefaultAttemptTimeout + DefaultAttemptTimeout/2, // the standby tries as well, once
				DefaultAttemptTimeout, DefaultAttemptTimeout, 0,
			}[i]
			if g.Takes[0].Source != shard.Provisional || took != want {
				t.Errorf("request %d: source %d after %v, want %v", i, g.Takes[0].Source, took, want)
			}
		}
	})
}

// A standby that gets the partition while it asks others decides in it, although its copy was not the best one.
func TestStandbyInstallsMeanwhile(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.noCopies = true
		defer c.nodes[1].stall()()
		time.AfterFunc(DefaultAttemptTimeout+DefaultAttemptTimeout/4, func() { // the standby asks the owner
			l.move(c.partition(k), 2)
			c.believe(c.nodes[2], k, c.nodes[2])
		})
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, 1)); !g.Allowed || g.Takes[0].Source != shard.Owner || l.counts[k] != 1 {
			t.Errorf("%+v, %d counted", g, l.counts[k])
		}
	})
}

// What no node has for a moment, as it is on its way, is asked for again.
func TestNoOwnerYet(t *testing.T) {
	for by, want := range map[int]shard.Source{1: shard.Owner, 2: shard.Relayed} {
		inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.noCopies = true
			l.move(c.partition(k), -1)
			const way = DefaultAttemptTimeout
			time.AfterFunc(way, func() {
				l.move(c.partition(k), by)
				for _, n := range c.nodes[1:3] {
					c.believe(n, k, c.nodes[by])
				}
			})
			g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
			if !g.Allowed || g.Takes[0].Source != want || l.counts[k] != 1 || took < way || took > way+copyPause+maxLost*hopPause {
				t.Errorf("by %d: %+v after %v, %d counted", by, g, took, l.counts[k])
			}
		})
	}
}

// What the owner has, and may not decide for a moment, is asked for again although the standby is not there.
func TestOwnerComesBackAndNoStandby(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.believe(c.nodes[1], k, c.nodes[1])
		l.move(c.partition(k), -1)
		c.kill(c.nodes[2])
		synctest.Wait()
		const way = DefaultAttemptTimeout
		time.AfterFunc(way, func() { l.move(c.partition(k), 1) })
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); !g.Allowed || g.Takes[0].Source != shard.Owner || l.counts[k] != 1 || took < way || took > way+copyPause {
			t.Errorf("%+v after %v, %d counted", g, took, l.counts[k])
		}
	})
}

// What the owner does not have yet is asked for again, also if the standby has ended: the owner is about to find a copy.
func TestOwnerWithoutItsPartition(t *testing.T) {
	for _, by := range []int{0, 1} {
		inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.noCopies = true
			l.move(c.partition(k), 2)
			for _, n := range c.nodes[:2] {
				c.believe(n, k, c.nodes[2])
			}
			c.nodes[by].ask(t.Context(), take(k, 10, 1))
			c.kill(c.nodes[2])
			synctest.Wait()
			const way = DefaultAttemptTimeout
			time.AfterFunc(way, func() {
				l.move(c.partition(k), 1)
				c.believe(c.nodes[1], k, c.nodes[1])
			})
			g, took := c.nodes[by].ask(t.Context(), take(k, 10, 1))
			if !g.Allowed || g.Takes[0].Source != shard.Owner || l.counts[k] != 2 || took < way || took > way+copyPause+maxLost*hopPause {
				t.Errorf("asked of %d: %+v after %v, %d counted", by, g, took, l.counts[k])
			}
		})
	}
}

// A standby decides what it is asked itself before two attempts are over: then a client turns to another node.
func TestStandbyDecidesForItself(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		for _, silent := range c.nodes[:2] { // the owner, and who else may reach it
			defer silent.stall()()
		}
		c.reaching[c.nodes[2].id] = []string{c.nodes[0].id}
		if g, took := c.nodes[2].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took >= 2*DefaultAttemptTimeout {
			t.Errorf("source %d after %v", g.Takes[0].Source, took)
		}
	})
}

// A standby through which too much would go to an owner that is there says nothing: it would
// count apart what the owner counts.
func TestStandbyOfABusyOwner(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.cut(c.nodes[0], c.nodes[1])
		resume := c.nodes[1].stall()
		done := make(chan struct{})
		go func() {
			defer close(done)
			groups := make([]shard.Group, maxPending)
			for i := range groups {
				groups[i].Takes = []shard.Take{take(k, 10, 0)}
			}
			c.nodes[2].router.Decide(t.Context(), groups)
		}()
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); took != 0 || g.Takes[0].Source != shard.Undecided {
			t.Errorf("%+v after %v", g, took)
		}
		resume()
		<-done
	})
}

// A redirect back to an owner that is dead meanwhile leads to its standby.
func TestRedirectToADeadOwner(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.handOver(l, k, 3, time.Millisecond)
		c.nodes[0].ask(t.Context(), take(k, 10, 1))
		c.handOver(l, k, 1, time.Millisecond)
		c.kill(c.nodes[1])
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took != 0 || l.copies[2][k] != 1 {
			t.Errorf("%+v after %v", g, took)
		}
	})
}

// What the standby has already it decides as the owner.
func TestStandbyThatIsTheOwner(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.kill(c.nodes[1])
		synctest.Wait()
		l.move(c.partition(k), 2)
		for _, i := range []int{0, 2} {
			if g, took := c.nodes[i].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Owner || took != 0 {
				t.Errorf("%+v after %v", g, took)
			}
		}
	})
}

// A new owner that cannot fetch a partition any more decides from what it has of it, for
// itself and for others.
func TestOwnerThatCannotFetch(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		l.move(c.partition(k), 3)
		c.believe(c.nodes[1], k, c.nodes[3])
		c.kill(c.nodes[3])
		synctest.Wait()
		for i := range 4 {
			if g, took := c.nodes[i%2].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took != 0 {
				t.Errorf("%+v after %v", g, took)
			}
		}
		if l.copies[1][k] != 4 {
			t.Errorf("%v counted", l.copies)
		}
	})
}

// An owner that has lost its decision lease decides nothing, with any replica: its standby
// does, or else no node.
func TestOwnerWithoutDecisionLease(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		l.move(c.partition(k), -1)
		c.believe(c.nodes[1], k, c.nodes[1])
		for i, n := range c.nodes {
			if g, took := n.ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took > maxLost*hopPause || l.copies[2][k] != int64(i+1) {
				t.Errorf("%s: %+v after %v, %v from copies", n.id, g, took, l.copies)
			}
		}
		c.kill(c.nodes[2])
		synctest.Wait()
		for _, n := range c.nodes[:2] {
			if g, _ := n.ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Undecided {
				t.Errorf("%s: %+v without a standby", n.id, g)
			}
		}
	})
}

// A group that spans owners is taken whole or not at all, although one of them is dead, and
// takes with several standbys are several parts.
func TestGroupOfADeadOwner(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		here, there := c.ownedBy(c.nodes[0], 0), c.ownedBy(c.nodes[3], 0)
		two, three := c.keyWith(1, 2, 0), c.keyWith(1, 3, 0)
		group := func(costs ...int64) (takes []shard.Take) {
			for i, k := range []ring.Key{here, there, two, three} {
				takes = append(takes, take(k, 10, costs[i]))
			}
			return takes
		}
		c.kill(c.nodes[1])
		synctest.Wait()
		counted := func() []int64 {
			synctest.Wait() // no caller waits for what is given back
			return []int64{l.counts[here], l.counts[there], l.copies[2][two], l.copies[3][three]}
		}
		for i, tc := range []struct {
			takes   []shard.Take
			allowed bool
			want    []int64
		}{
			{group(1, 2, 3, 4), true, []int64{1, 2, 3, 4}},
			{group(1, 9, 1, 1), false, []int64{1, 2, 3, 4}}, // copies get theirs back, too
			{group(1, 1, 1, 1)[2:], true, []int64{1, 2, 4, 5}},
		} {
			g, took := c.nodes[0].ask(t.Context(), tc.takes...)
			if g.Allowed != tc.allowed || took != 0 || !slices.Equal(counted(), tc.want) {
				t.Errorf("step %d: %+v after %v, counted %v, want %v", i, g, took, counted(), tc.want)
			}
		}
	})
}

// Where no node is left that could decide, the policy applies.
func TestPolicyWithoutNodes(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.kill(c.nodes[1])
		c.kill(c.nodes[2])
		synctest.Wait()
		for p, allowed := range map[shard.Policy]bool{shard.FailOpen: true, shard.FailClosed: false} {
			one := take(k, 10, 1)
			one.OnFailure = p
			if g, took := c.nodes[0].ask(t.Context(), one); g.Takes[0].Source != shard.Undecided || g.Allowed != allowed || took != 0 {
				t.Errorf("policy %d: %+v after %v", p, g, took)
			}
		}
	})
}

// A reset is for the owner alone, but relayed to it; what is refunded to copies is as the
// shard has it.
func TestStandbyResetsNothing(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		groups := func() []shard.Group {
			return []shard.Group{{Takes: []shard.Take{take(k, 10, -1)}}, {Takes: []shard.Take{take(k, 10, 0)}, Reset: true}}
		}
		c.nodes[0].ask(t.Context(), take(k, 10, 5))
		c.cut(c.nodes[0], c.nodes[1])
		synctest.Wait()
		relayed := groups()
		c.nodes[0].router.Decide(t.Context(), relayed)
		c.kill(c.nodes[1])
		synctest.Wait()
		l.copies[2][k] = 5
		for _, n := range []int{0, 2} {
			for i, g := range groups() {
				one := []shard.Group{g}
				c.nodes[n].router.Decide(t.Context(), one)
				want := []shard.Source{shard.Provisional, shard.Undecided}[i]
				if relayed[i].Takes[0].Source != shard.Relayed || one[0].Takes[0].Source != want {
					t.Errorf("group %d by node %d: relayed %+v, then %+v", i, n, relayed[i], one[0])
				}
			}
		}
		if l.counts[k] != 4 || l.copies[2][k] != 3 {
			t.Errorf("%d counted, %v from copies", l.counts[k], l.copies)
		}
	})
}

// An overloaded node is not to be relieved by a node that counts separately.
func TestOverloadIsNotForStandbys(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		resume := c.nodes[1].stall()
		groups := make([]shard.Group, maxPending)
		for i := range groups {
			groups[i].Takes = []shard.Take{take(k, 10, 0)}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.nodes[0].router.Decide(t.Context(), groups)
		}()
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); took != 0 || g.Allowed || g.Takes[0].Source != shard.Overloaded {
			t.Errorf("%+v after %v", g, took)
		}
		resume()
		<-done
	})
}

// With real shards: the standby counts on from its copy, and a part of a group that is
// denied elsewhere is given back to it.
func TestStandbyCountsOnFromItsCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newEmptyCluster(t)
		c.standbys = true
		c.start(nil, NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true))
		defer c.close()
		k, full := c.keyWith(1, 2, 0), take(c.ownedBy(c.nodes[0], 0), 0, 1)
		p := c.partition(k)
		c.nodes[0].ask(t.Context(), take(k, 10, 4))
		c.nodes[1].shard.Follow(p, shard.ToStandby)
		records, _ := c.nodes[1].shard.Changes(p, shard.ToStandby, nil, 1<<16)
		if err := c.nodes[2].shard.Apply(p, records); err != nil {
			t.Fatal(err)
		}
		c.kill(c.nodes[1])
		synctest.Wait()
		for i, tc := range []struct {
			takes     []shard.Take
			allowed   bool
			remaining int64
		}{
			{[]shard.Take{take(k, 10, 3)}, true, 3},
			{[]shard.Take{take(k, 10, 2), full}, false, 3},
			{[]shard.Take{take(k, 10, 3)}, true, 0},
			{[]shard.Take{take(k, 10, 1)}, false, 0},
		} {
			g, took := c.nodes[i%2*2].ask(t.Context(), tc.takes...)
			if d := g.Takes[0]; d.Source != shard.Provisional || g.Allowed != tc.allowed || d.Decision.Remaining != tc.remaining || took != 0 {
				t.Errorf("step %d: %+v after %v, want %+v", i, g, took, tc)
			}
			synctest.Wait() // no caller waits for what is given back
		}
		if grants := c.nodes[2].shard.TakeGrants(p, 10); len(grants) != 1 || grants[0].Key.Hi != k.Hi {
			t.Errorf("kept apart: %+v", grants)
		}
	})
}
