package cluster

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// keyWith returns the i-th key of that owner and that standby.
func (c *testCluster) keyWith(owner, standby, i int) ring.Key {
	for j := 0; ; j++ {
		k := c.ownedBy(c.nodes[owner], j)
		if c.view.Ring.Standby(c.partition(k)) != standby {
			continue
		}
		if i == 0 {
			return k
		}
		i--
	}
}

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

// A refund that an owner may have counted, and has not answered, is sent to no other node: it would be counted there, or passed on to
// the owner, once more. What was not sent to an owner is.
func TestRefundIsSentOnce(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.nodes[0].ask(t.Context(), take(k, 10, 8))
		resume := c.nodes[1].stall()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Unanswered || took != DefaultAttemptTimeout {
			t.Errorf("by the owner's silence: %+v after %v", g, took)
		}
		c.cut(c.nodes[3], c.nodes[1])
		synctest.Wait()
		if g, _ := c.nodes[3].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Unanswered {
			t.Errorf("by that of the one whom the standby has asked: %+v", g)
		}
		resume()
		time.Sleep(time.Second)
		synctest.Wait()
		if l.counts[k] != 8-3-3 || l.copies[2][k] != 0 {
			t.Errorf("%d counted after 8 and two refunds of 3, %d by the standby", l.counts[k], l.copies[2][k])
		}
		c.cut(c.nodes[0], c.nodes[1])
		synctest.Wait()
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, -1)); g.Takes[0].Source != shard.Relayed || l.counts[k] != 1 {
			t.Errorf("past a broken conn: %+v, %d counted", g, l.counts[k])
		}
	})
}

// A refund that the owner does not have a counter for yet, and that the standby may have counted, is not asked for again.
func TestRefundToASilentStandbyIsSentOnce(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.nodes[0].ask(t.Context(), take(k, 10, 8))
		c.former = "no node that is there" // so the owner's copy is none to decide from
		l.move(c.partition(k), -1)
		resume := c.nodes[2].stall()
		time.AfterFunc(DefaultAttemptTimeout/2, func() { l.move(c.partition(k), 1) })
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Unanswered {
			t.Errorf("%+v", g)
		}
		resume()
		time.Sleep(time.Second)
		synctest.Wait()
		if l.counts[k] < 8-3 {
			t.Errorf("%d counted after 8 and a refund of 3", l.counts[k])
		}
	})
}

// A refund that waits until no node remembers a denial takes none along that is not answered.
func TestRefundThatWaitsWithALostOne(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		silent, waits := c.keyWith(1, 2, 0), c.keyWith(3, 2, 0)
		c.nodes[0].ask(t.Context(), take(silent, 10, 8))
		c.nodes[0].ask(t.Context(), take(waits, 10, 8))
		raise(&c.nodes[3].denialLeases.slot(waits).told, c.nodes[3].denialLeases.now()+int64(maxDenialLease))
		resume := c.nodes[1].stall()
		groups := []shard.Group{{Takes: []shard.Take{take(silent, 10, -3)}}, {Takes: []shard.Take{take(waits, 10, -3)}}}
		c.nodes[0].router.Decide(t.Context(), groups)
		if groups[0].Takes[0].Source != shard.Unanswered || groups[1].Takes[0].Source != shard.Owner {
			t.Errorf("%+v", groups)
		}
		resume()
		time.Sleep(time.Second)
		synctest.Wait()
		if l.counts[silent] != 8-3 || l.counts[waits] != 8-3 {
			t.Errorf("%d and %d counted after 8 and refunds of 3", l.counts[silent], l.counts[waits])
		}
	})
}

// A standby that gets the partition while it asks others decides in it, although its copy was not the best one.
func TestStandbyInstallsMeanwhile(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.former = "no node that is there"
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
	for _, by := range []int{1, 2} {
		inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.former = "no node that is there" // so the standby's copy is none to decide from
			l.move(c.partition(k), -1)
			const way = DefaultAttemptTimeout
			time.AfterFunc(way, func() {
				l.move(c.partition(k), by)
				c.believe(c.nodes[by], k, c.nodes[by])
			})
			g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
			if !g.Allowed || g.Takes[0].Source != shard.Owner || l.counts[k] != 1 || took < way || took > way+copyPause+maxLost*hopPause {
				t.Errorf("by %d: %+v after %v, %d counted", by, g, took, l.counts[k])
			}
		})
	}
}

// What the owner does not have yet is asked for again, also if the standby has ended: the owner is about to find a copy.
func TestOwnerWithoutItsPartition(t *testing.T) {
	for _, by := range []int{0, 1} {
		inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.former = "no node that is there" // so the owner's copy is none to decide from
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

// A node that alone cannot reach the owner is answered by it all the same, through the standby.
func TestStandbyRelays(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k, other := c.keyWith(1, 2, 0), c.keyWith(1, 2, 1)
		c.cut(c.nodes[0], c.nodes[1])
		synctest.Wait()
		for i := range 12 {
			g, took := c.nodes[i%3].ask(t.Context(), take(k, 10, 1), take(other, 20, 1))
			want := shard.Owner
			if i%3 == 0 {
				want = shard.Relayed
			}
			if g.Takes[0].Source != want || g.Takes[1].Source != want || g.Allowed != (i < 10) || took != 0 {
				t.Errorf("take %d: %+v after %v", i, g, took)
			}
		}
		if l.counts[k] != 10 || l.counts[other] != 10 || len(l.copies[2]) != 0 {
			t.Errorf("%d and %d counted, %v from copies", l.counts[k], l.counts[other], l.copies)
		}
		if n := testutil.ToFloat64(c.nodes[2].router.metrics.relayed); n != 4 {
			t.Errorf("%v relayed, want 4", n)
		}
		// No denial leases travel that way, and nothing is lent.
		if g := (&shard.Group{Takes: []shard.Take{take(k, 10, 1)}, Lend: 5, Tokens: 1}); opOf(g).of(asStandby) != opDecide|opStandby {
			t.Error("a standby is asked for a lease")
		}
	})
}

// Where the standby has no copy yet, the former standby decides, at every node, and no other does.
func TestStandbyWithoutCopy(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.former = c.nodes[3].id
		c.kill(c.nodes[1])
		synctest.Wait()
		for _, i := range []int{0, 2, 3} {
			if g, took := c.nodes[i].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took != 0 {
				t.Errorf("asked of %d: %+v after %v", i, g, took)
			}
		}
		if l.copies[3][k] != 3 {
			t.Errorf("%v counted", l.copies)
		}
		c.kill(c.nodes[3])
		synctest.Wait()
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Unanswered || l.copies[2][k] != 0 {
			t.Errorf("no node has a copy: %+v, %v", g, l.copies)
		}
	})
}

// A node that reaches neither a living owner nor the standby of a dead one has a bystander ask.
func TestBystanderForwardsToTheStandby(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.telling = true
		c.cut(c.nodes[0], c.nodes[1])
		c.cut(c.nodes[0], c.nodes[2])
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Relayed || took != 0 || l.counts[k] != 1 {
			t.Errorf("the owner lives: %+v after %v", g, took)
		}
		c.kill(c.nodes[1])
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took != 0 || l.copies[2][k] != 1 {
			t.Errorf("the owner is dead: %+v after %v, %v", g, took, l.copies)
		}
	})
}

// A standby that does not know yet that it does not reach the owner asks a node that
// does, all the same, before it decides itself.
func TestStandbyRelaysThroughOthers(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.tell("c", "d")
		c.lose(c.nodes[0], c.nodes[1])
		c.lose(c.nodes[2], c.nodes[1])
		for i := range 12 {
			g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
			if g.Takes[0].Source != shard.Relayed || g.Allowed != (i < 10) || took > DefaultAttemptTimeout*3/2 {
				t.Errorf("take %d: %+v after %v", i, g, took)
			}
		}
		if l.counts[k] != 10 || len(l.copies[2]) != 0 {
			t.Errorf("%d counted, %v from copies", l.counts[k], l.copies)
		}
	})
}

// A standby that waits for a silent owner keeps no caller waiting that asks it as an owner.
func TestWaitingStandbyAnswersAsOwner(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		silent, k := c.keyWith(3, 2, 0), c.keyWith(2, 1, 0)
		defer c.nodes[3].stall()()
		c.cut(c.nodes[0], c.nodes[2])
		synctest.Wait()
		done := make(chan shard.Group)
		go func() {
			g, _ := c.nodes[1].ask(t.Context(), take(silent, 10, 1))
			done <- g
		}()
		time.Sleep(DefaultAttemptTimeout + DefaultAttemptTimeout/8) // its standby relays it
		for range 3 {
			if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Relayed || took != 0 {
				t.Errorf("%+v after %v", g, took)
			}
		}
		if g := <-done; g.Takes[0].Source != shard.Provisional {
			t.Errorf("%+v", g)
		}
	})
}

// A node that has said that it reaches the owner may not any more: it says so at once if it has
// doubts, and others are asked.
func TestStandbyRelaysThroughOthersInDoubt(t *testing.T) {
	for _, asker := range []int{0, 2} { // the standby itself, too
		inLedger(t, 5, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.tell("c", "d", "e")
			for _, i := range []int{0, 2, 3} {
				c.lose(c.nodes[i], c.nodes[1])
			}
			time.Sleep(silence - DefaultAttemptTimeout*3/2)
			g, took := c.nodes[asker].ask(t.Context(), take(k, 10, 1))
			if s := g.Takes[0].Source; s != shard.Relayed && (asker == 0 || s != shard.Owner) || took > DefaultAttemptTimeout {
				t.Errorf("asked at %d: %+v after %v", asker, g, took)
			}
			if l.counts[k] != 1 || len(l.copies[2]) != 0 {
				t.Errorf("asked at %d: %d counted, %v from copies", asker, l.counts[k], l.copies)
			}
		})
	}
}

// Where two are cut off at once, one of which has it and the other one has said that it reaches that, others are asked first.
func TestStandbyRelaysThroughTimelyMembers(t *testing.T) {
	for _, asker := range []int{0, 2} { // the standby itself, too
		inLedger(t, 5, func(t *testing.T, c *testCluster, l *ledger) {
			k := c.keyWith(1, 2, 0)
			c.tell("c", "d", "e")
			c.lose(c.nodes[2], c.nodes[3])
			time.Sleep(silence - probeEvery/2)
			c.cut(c.nodes[0], c.nodes[1])
			c.cut(c.nodes[2], c.nodes[1])
			synctest.Wait()
			g, took := c.nodes[asker].ask(t.Context(), take(k, 10, 1))
			if g.Takes[0].Source != shard.Relayed || took != 0 || l.counts[k] != 1 || len(l.copies[2]) != 0 {
				t.Errorf("asked at %d: %+v after %v; %d counted, %v from copies", asker, g, took, l.counts[k], l.copies)
			}
		})
	}
}

// What has moved is relayed to where it is.
func TestStandbyRelaysToTheOwner(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.handOver(l, k, 3, time.Millisecond)
		c.cut(c.nodes[0], c.nodes[1])
		c.cut(c.nodes[0], c.nodes[3])
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Relayed || took != 0 || l.counts[k] != 1 {
			t.Errorf("%+v after %v", g, took)
		}
	})
}

// A relayed part of a group that is denied elsewhere is given back by the node that has relayed it.
func TestRelayedIsGivenBack(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k, full := c.keyWith(1, 2, 0), take(c.ownedBy(c.nodes[0], 0), 0, 1)
		c.cut(c.nodes[0], c.nodes[1])
		synctest.Wait()
		g, _ := c.nodes[0].ask(t.Context(), take(k, 10, 1), full)
		synctest.Wait()
		if n := testutil.ToFloat64(c.nodes[0].router.metrics.lostReturns); g.Allowed || n != 0 || l.counts[k] != 0 {
			t.Errorf("%+v, %v lost, %d counted", g, n, l.counts[k])
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
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); took != 0 || g.Takes[0].Source != shard.Unanswered {
			t.Errorf("%+v after %v", g, took)
		}
		resume()
		<-done
	})
}

// A hint that leads back to an owner that is dead meanwhile leads to its standby.
func TestHintThatLeadsToADeadOwner(t *testing.T) {
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
			if g, _ := n.ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Unanswered {
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
			if g, took := c.nodes[0].ask(t.Context(), one); g.Takes[0].Source != shard.Unanswered || g.Allowed != allowed || took != 0 {
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
				want := []shard.Source{shard.Provisional, shard.Unanswered}[i]
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
		c.start(nil, NewDenialLeases(true, true), NewDenialLeases(true, true), NewDenialLeases(true, true))
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
