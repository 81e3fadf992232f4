package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

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

// A standby does not ask the node through which it would relay whether that reaches the owner, if that node asks itself: it does not.
func TestStandbyDoesNotAskTheAsker(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.tell("c", "a")
		c.lose(c.nodes[0], c.nodes[1])
		c.lose(c.nodes[2], c.nodes[1])
		g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1))
		if g.Takes[0].Source != shard.Provisional || l.copies[2][k] != 1 {
			t.Errorf("%+v after %v, %v", g, took, l.copies)
		}
		if n := c.nodes[0].takes.Load(); n != 0 {
			t.Errorf("the asker was asked %d times", n)
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

// forwardsOf says by the roles on spans how often a take may still be forwarded by the node that gets it.
var forwardsOf = map[string]int{"standby": 2, "relay": 1, "owner": 0}

// legsOf returns how many legs lead to a span, of which spanLines has made a line. Each leg must leave fewer forwards than the one before.
func legsOf(t *testing.T, line string) (legs int) {
	t.Helper()
	left := 3
	for _, step := range strings.Split(line, " > ") {
		words := strings.Fields(step)
		if words[0] != "weir.hop" {
			continue
		}
		legs++
		forwards, known := forwardsOf[words[1]]
		if !known || forwards >= left {
			t.Errorf("%s: leg %d leaves %d forwards, and the one before left %d", line, legs, forwards, left)
		}
		left = forwards
	}
	return legs
}

// disagree has each node route by a view of its own, in which random members own and stand by for k.
func (c *testCluster) disagree(r *rand.Rand, k ring.Key) {
	c.t.Helper()
	for _, n := range c.nodes {
		v := *c.view
		owner, standby := v.Ring.Tables()
		owner, standby = slices.Clone(owner), slices.Clone(standby)
		p := c.partition(k)
		owner[p] = uint16(r.IntN(len(c.nodes)))
		standby[p] = uint16(r.IntN(len(c.nodes)))
		var err error
		if v.Ring, err = ring.FromTables(owner, standby, len(v.Members)); err != nil {
			c.t.Fatal(err)
		}
		n.router.SetView(&v)
	}
}

// A node forwards only as what leaves fewer forwards than it was asked with.
func TestForwardsAreCounted(t *testing.T) {
	names := [...]string{asOwner: "owner", asStandby: "standby", asRelay: "relay"}
	for how, asked := range names {
		for as, asks := range names {
			inLedger(t, 3, func(t *testing.T, c *testCluster, _ *ledger) {
				g := shard.Group{Takes: []shard.Take{take(c.keyWith(1, 2, 0), 10, 1)}}
				setSource(&g, shard.Redirected)
				own := &c.nodes[0].router.own
				q := relaying{own: own, ctx: t.Context(), local: own.local, groups: []shard.Group{g}, as: role(how), due: time.Now().Add(DefaultAttemptTimeout)}
				q.relay(role(as), func(*routingTable, *shard.Group, role) int { return 1 })
				want := int64(0)
				if forwardsOf[asks] < forwardsOf[asked] {
					want = 1
				}
				if n := c.nodes[1].takes.Load(); n != want {
					t.Errorf("asked as the %s, it has asked as the %s %d times, want %d", asked, asks, n, want)
				}
			})
		}
	}
}

// A question makes at most three legs: from the node that was asked to the standby, from there to a member that reaches the owner, and from there to the
// owner. Links are cut at random, nodes take random others for the owner, and in half of the worlds no two nodes need have the same view.
func TestAtMostThreeLegs(t *testing.T) {
	most, seeds := 0, uint64(400)
	if testform.RaceEnabled {
		seeds = 40
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			ended := tracetest.NewSpanRecorder()
			tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("test")
			c := newEmptyCluster(t)
			c.standbys, c.tracer, c.telling, c.noCopies = true, tracer, r.IntN(4) > 0, r.IntN(2) > 0
			c.start(nil, NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true))
			defer c.close()
			k := c.keyWith(1, 2, 0)
			for _, from := range c.nodes {
				for _, to := range c.nodes {
					// Most nodes do not reach the owner, so that they ask others.
					if from != to && (r.IntN(6) == 0 || to == c.nodes[1] && r.IntN(3) > 0) {
						c.cut(from, to)
					}
				}
				if r.IntN(3) == 0 {
					c.believe(from, k, c.nodes[r.IntN(4)])
				}
				if r.IntN(2) == 0 { // which may not be true any more
					c.tell(from.id, c.nodes[r.IntN(4)].id)
				}
			}
			if seed%2 == 1 {
				c.disagree(r, k)
				if r.IntN(2) == 0 { // no node may decide
					c.nodes[1].shard.Seal(c.partition(k))
				}
			}
			synctest.Wait()
			for _, asked := range c.nodes {
				ctx, check := tracer.Start(t.Context(), "check")
				asked.ask(ctx, take(k, 10, 1))
				check.End()
				synctest.Wait()
			}
			for _, line := range spanLines(t, ended.Ended()) {
				legs := legsOf(t, line)
				if most = max(most, legs); legs > 3 {
					t.Errorf("seed %d: %s", seed, line)
				}
			}
		})
	}
	if most != 3 {
		t.Errorf("at most %d legs were seen, want three", most)
	}
}

// A standby that has waited for one check until the owner was late keeps none waiting until its asker gives it up, although the owner has said something
// meanwhile, and may answer.
func TestChecksBehindWaitingOnesAreAnswered(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		const others = 4
		c.tell("c", "d") // which does not hear from it either
		defer c.nodes[1].stall()()
		time.Sleep(2*probeEvery - DefaultAttemptTimeout*6/5) // it answers a ping of the standby while the first check waits there
		answers := make(chan shard.Group, others)
		for i := range others {
			go func() {
				g, _ := c.nodes[0].ask(t.Context(), take(c.keyWith(1, 2, i), 10, 1))
				answers <- g
			}()
			time.Sleep(time.Millisecond)
		}
		for range others {
			if g := <-answers; g.Takes[0].Source != shard.Provisional {
				t.Errorf("%+v", g)
			}
		}
	})
}

// A standby asks an owner again soon that was late only because there was little time: for a caller in a hurry, or for checks that had waited behind others.
func TestOwnersThatHadLittleTimeAreAskedAgain(t *testing.T) {
	for _, test := range []struct{ needs, deadline time.Duration }{{3 * time.Millisecond, 10 * time.Millisecond}, {10 * time.Millisecond, time.Minute}} {
		inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
			c.cut(c.nodes[0], c.nodes[1])
			synctest.Wait()
			c.nodes[1].perTake.Store(int64(test.needs))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				ctx, cancel := context.WithTimeout(t.Context(), test.deadline)
				defer cancel()
				c.nodes[0].ask(ctx, take(c.keyWith(1, 2, 0), 10, 1))
			}()
			time.Sleep(time.Millisecond)
			c.nodes[0].ask(t.Context(), take(c.keyWith(1, 2, 1), 10, 1))
			<-ended
			time.Sleep(DefaultAttemptTimeout)
			if g, took := c.nodes[0].ask(t.Context(), take(c.keyWith(1, 2, 2), 10, 1)); g.Takes[0].Source != shard.Relayed || took != test.needs {
				t.Errorf("the owner needs %v: %+v after %v", test.needs, g, took)
			}
		})
	}
}

// Until a view names another standby, which it cannot while the owner does not reach it, a node that does not reach the owner asks others that do.
func TestRelayWhereNoNodeStandsBy(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c", "d")
		c.settled()
		keys := c.keysOf("a", "c", 20)
		c.unreach(true, "a:1", "d")
		c.unreach(true, "d:1", "a")
		pass(2 * time.Second)
		c.crash("c")
		c.registry.expire("c")
		var without int // checks where the view names no standby
		for began := time.Now(); time.Since(began) < 10*time.Second; pass(100 * time.Millisecond) {
			for _, key := range keys {
				if v := c.alive["d"].owners.View(); v.Partitions[key.Partition(uint32(len(v.Partitions)))].Standby.ID == "" {
					without++
				}
				if _, source := c.checkAt(c.alive["d"], key); source == shard.Undecided {
					t.Errorf("after %v a check is undecided", time.Since(began))
					return
				}
			}
		}
		if without == 0 {
			t.Error("there always was a standby")
		}
	})
}

// An owner that is late and has no standby is asked by one other member, not by all that reach it.
func TestRelayToALateOwnerWithoutStandby(t *testing.T) {
	inLedger(t, 5, func(t *testing.T, c *testCluster, _ *ledger) {
		k := c.keyWith(1, 2, 0)
		c.telling = true
		c.dropStandby(k)
		synctest.Wait()
		c.nodes[1].perTake.Store(int64(DefaultAttemptTimeout * 5 / 4))
		const checks = 10
		for range checks {
			c.nodes[0].ask(t.Context(), take(k, 1000, 1))
			pass(time.Second)
		}
		if n := c.nodes[1].takes.Load(); n < 2*checks || n > 3*checks {
			t.Errorf("the owner was asked %d times for %d checks", n, checks)
		}
	})
}

// dropStandby has all nodes adopt a view without a standby for a counter.
func (c *testCluster) dropStandby(k ring.Key) {
	v := *c.view
	owner, standby := v.Ring.Tables()
	standby = slices.Clone(standby)
	p := c.partition(k)
	standby[p] = owner[p]
	var err error
	if v.Ring, err = ring.FromTables(owner, standby, len(v.Members)); err != nil {
		c.t.Fatal(err)
	}
	for _, n := range c.nodes {
		n.router.SetView(&v)
	}
}
