package cluster

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// TestDeniedGroupsTakeNothingWhileANodeIsHalted has users without room ask for tokens of an organisation that
// has 200, through two nodes, while the third one is halted.
func TestDeniedGroupsTakeNothingWhileANodeIsHalted(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		const pairs, cost, limit = 60, 20, 200
		user := func(i int) shard.Take {
			return shard.Take{Key: ownershipKey(i), Limit: perHour(cost), Cost: cost}
		}
		org := func(i int, cost int64) shard.Take {
			return shard.Take{Key: ownershipKey(1000 + i), Limit: perHour(limit), Cost: cost}
		}
		for i := range pairs {
			if g, _ := c.alive["a"].ask(t.Context(), user(i)); !g.Allowed {
				t.Fatal(g)
			}
		}
		c.replicated()
		goOn := c.alive["b"].halt()
		var through [pairs]atomic.Int64
		var wg sync.WaitGroup
		for i := range 10 * pairs {
			wg.Go(func() {
				asked := []*ownershipNode{c.alive["a"], c.alive["c"]}[i%2]
				if g, _ := asked.ask(t.Context(), user(i/10), org(i/10, cost)); g.Allowed { // the user's limit was not decided in time
					through[i/10].Add(1)
				}
			})
		}
		time.Sleep(70 * time.Millisecond)
		goOn()
		wg.Wait()
		time.Sleep(time.Second)
		denied := 0
		for i := range pairs {
			n := through[i].Load()
			denied += int(10 - n)
			if g, _ := c.alive["c"].ask(t.Context(), org(i, limit-cost*n)); !g.Allowed {
				t.Errorf("organisation %d has %d of %d left, although %d of 10 requests were denied", i, g.Takes[0].Decision.Remaining, limit, 10-n)
			}
		}
		if denied < 10*pairs*9/10 {
			t.Errorf("%d of %d requests were denied", denied, 10*pairs)
		}
		if n := testutil.ToFloat64(c.alive["b"].router.metrics.dropped); n == 0 {
			t.Error("nothing was late at the node that was halted")
		}
	})
}

// TestLateAnswersAreGivenBack stops an owner after it has read what it is asked: it counts that too late.
func TestLateAnswersAreGivenBack(t *testing.T) {
	for _, algorithm := range []algorithms.Algorithm{
		algorithms.SlidingWindow, algorithms.FixedWindow, algorithms.SlidingWindowLog, algorithms.SlidingWindowBuckets, algorithms.TokenBucket,
	} {
		inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
			there, here := c.ownedBy(c.nodes[2], 0), c.ownedBy(c.nodes[1], 0)
			limit := algorithms.Limit{Algorithm: algorithm, Limit: 200, Window: int64(time.Hour)}
			if algorithm == algorithms.SlidingWindowBuckets {
				limit.Buckets = 60
			}
			of := func(k ring.Key, cost int64) shard.Take { return shard.Take{Key: k, Limit: limit, Cost: cost} }
			resume := c.nodes[2].stall()
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { c.nodes[0].ask(t.Context(), of(there, 20)) })
				wg.Go(func() { c.nodes[0].ask(t.Context(), of(there, 20), of(here, 201)) }) // denied by the other owner
			}
			wg.Wait()
			resume()
			synctest.Wait()
			if n := c.used(of(there, 0)); n != 0 {
				t.Errorf("%v: %d tokens are used, although no check was answered", algorithm, n)
			}
			undone := testutil.ToFloat64(c.nodes[0].router.metrics.undone)
			if undone+testutil.ToFloat64(c.nodes[2].router.metrics.dropped) == 0 {
				t.Errorf("%v: nothing was given back or dropped", algorithm)
			}
		})
	}
}

// What is lent too late is given back as well.
func TestLateTokenLeasesAreGivenBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		key := c.ownedBy(c.nodes[2], 0)
		for range 2 * hotAsks {
			c.nodes[0].ask(t.Context(), take(key, 1000, 1))
		}
		before := c.used(take(key, 1000, 0)) - c.lent(key)
		for lent := c.lent(key); lent > 0; lent = c.lent(key) { // until it is time to ask for more
			resume := c.nodes[2].stall()
			g, _ := c.nodes[0].ask(t.Context(), take(key, 1000, 1))
			before += int64(boolByte(g.Takes[0].Source == shard.Lent))
			resume()
			synctest.Wait()
			if g.Takes[0].Source == shard.Undecided {
				break
			}
		}
		time.Sleep(time.Second)
		if after := c.used(take(key, 1000, 0)); after != before {
			t.Errorf("%d tokens are used, not %d", after, before)
		}
	})
}

// TestLostAnswersAreCounted breaks a connection while a request is under way.
func TestLostAnswersAreCounted(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		go func() {
			time.Sleep(DefaultAttemptTimeout / 2)
			c.cut(c.nodes[0], c.nodes[2])
		}()
		c.nodes[0].ask(t.Context(), take(c.ownedBy(c.nodes[2], 0), 10, 1))
		resume()
		synctest.Wait()
		if n := testutil.ToFloat64(c.nodes[0].router.metrics.uncertain); n != 1 {
			t.Errorf("%v checks are counted as uncertain, not 1", n)
		}
	})
}

// TestLostReturnsAreCounted breaks the connection to a node that has counted its part of a request, before another node denies the request.
func TestLostReturnsAreCounted(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		there, full := take(c.ownedBy(c.nodes[2], 0), 200, 20), take(c.ownedBy(c.nodes[1], 0), 1, 1)
		c.nodes[0].ask(t.Context(), full)
		resume := c.nodes[1].stall()
		go func() {
			time.Sleep(DefaultAttemptTimeout / 2)
			c.cut(c.nodes[0], c.nodes[2])
			synctest.Wait()
			resume()
		}()
		if g, _ := c.nodes[0].ask(t.Context(), there, full); g.Allowed {
			t.Errorf("%+v", g)
		}
		lost, used := testutil.ToFloat64(c.nodes[0].router.metrics.lostReturns), c.used(there)
		if lost != 1 || used != there.Cost {
			t.Errorf("%v lost returns are counted, and %d tokens stay used, want 1 and %d", lost, used, there.Cost)
		}
	})
}

// TestForwardedReturnsReachTheOwner gives back, to the standby, what it has granted and told the owner of meanwhile.
func TestForwardedReturnsReachTheOwner(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		key := c.anyKey("b", "c")
		goOn := c.alive["b"].halt()
		asked := take(key, 10, 4)
		g, _ := c.alive["a"].ask(t.Context(), asked)
		goOn()
		if g.Takes[0].Source != shard.Provisional || !g.Allowed {
			t.Fatalf("%+v", g)
		}
		time.Sleep(time.Second) // the owner knows
		a := c.alive["a"].router
		if err := a.table.Load().conn(c.index("c"), key).giveBack(g.Takes, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if g, _ := c.alive["a"].ask(t.Context(), take(key, 10, 10)); !g.Allowed || g.Takes[0].Source != shard.Owner {
			t.Errorf("%+v", g)
		}
	})
}

// TestReturnsReachTheStandbyThroughAnother denies groups of which a standby has granted a part, for a node that reaches
// it only through another one. Their give-backs must not reach the owner before the grant.
func TestReturnsReachTheStandbyThroughAnother(t *testing.T) {
	for _, halted := range []time.Duration{50 * time.Millisecond, 200 * time.Millisecond, time.Second} {
		inOwners(t, func(t *testing.T, c *ownershipCluster) {
			c.start("a", "b", "c", "d")
			c.settled()
			c.replicated()
			owner, a, d := c.alive["b"], c.alive["a"], c.alive["d"]
			org := c.anyKey("b", "a")
			full := c.keysOf("c", "d", 3)
			for _, k := range full {
				if g, _ := d.ask(t.Context(), take(k, 20, 20)); !g.Allowed {
					t.Fatalf("%+v", g)
				}
			}
			cutOff := func(is bool) {
				c.unreach(is, a.node.Address, "d")
				c.unreach(is, owner.node.Address, "d")
			}
			cutOff(true)
			goOn := owner.halt()
			c.alive["c"].ask(t.Context(), take(org, 200, 0)) // so that it knows
			for _, k := range full {
				if g, _ := d.ask(t.Context(), take(org, 200, 20), take(k, 20, 20)); g.Allowed || g.Takes[0].Source != shard.Provisional {
					t.Errorf("%+v", g)
				}
			}
			time.Sleep(halted)
			goOn()
			time.Sleep(time.Second)
			cutOff(false)
			if g, _ := a.ask(t.Context(), take(org, 200, 200)); !g.Allowed {
				t.Errorf("halted for %v: %d of 200 are left, although all requests were denied", halted, g.Takes[0].Decision.Remaining)
			}
		})
	}
}

// TestReturnsDoNotOvertakeGrants gives back, to the standby, what it has granted, while the grant is on its way to the
// owner, which is halted. The owner has one less to give back until it has added the grant.
func TestReturnsDoNotOvertakeGrants(t *testing.T) {
	inOwners(t, func(t *testing.T, c *ownershipCluster) {
		c.start("a", "b", "c")
		c.settled()
		c.replicated()
		key, standby := c.anyKey("b", "a"), c.alive["a"]
		goOn := c.alive["b"].halt()
		g, _ := standby.ask(t.Context(), take(key, 10, 4))
		if g.Takes[0].Source != shard.Provisional || !g.Allowed {
			t.Errorf("%+v", g)
		}
		underway := func() bool {
			return !standby.owners.node.GrantsAreAdded(key.Partition(uint32(ownershipRing.Partitions)))
		}
		standby.router.own.denialLeases.giveBack(standby.owners.Shard, g.Takes)
		if !underway() {
			t.Error("no grant is under way")
		}
		c.losing.Store(true)
		goOn()
		time.Sleep(time.Second / 2)
		c.losing.Store(false)
		c.await("the owner has the grant", func() bool { return !underway() })
		time.Sleep(100 * time.Millisecond)
		for _, id := range []string{"a", "c"} {
			if g, _ := c.alive[id].ask(t.Context(), take(key, 10, 5)); !g.Allowed || g.Takes[0].Source != shard.Owner {
				t.Errorf("%+v", g)
			}
		}
	})
}

// A give-back makes at most three legs: to the node that was asked, from there to the one that has decided, and from there to the
// one that has the counter since. Each node takes random others for that, and none of them has it.
func TestReturnsMakeAtMostThreeLegs(t *testing.T) {
	most := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var legs atomic.Int64
			c := newEmptyCluster(t)
			c.standbys, c.grantsAreAdded = true, true
			c.sent = func(frame []byte) {
				var b batch
				if err := b.read(frame); err != nil {
					t.Error(err)
				}
				for i := range b.requests {
					if b.requests[i].op == opReturn {
						legs.Add(1)
					}
				}
			}
			c.start(nil, NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true))
			defer c.close()
			k := c.keyWith(1, 2, 0)
			c.disagree(r, k)
			for _, n := range c.nodes {
				n.shard.Seal(c.partition(k))
				if r.IntN(4) > 0 {
					c.believe(n, k, c.nodes[r.IntN(4)])
				}
			}
			for _, source := range []shard.Source{shard.Owner, shard.Provisional, shard.Relayed, shard.Redirected} {
				legs.Store(0)
				returned, decided := take(k, 10, 1), uint64(0)
				if returned.Source = source; returnOf(source).namesDecider() {
					decided = markOf(c.nodes[r.IntN(4)].id)
				}
				if err := c.nodes[0].router.table.Load().conn(1+r.IntN(3), k).giveBack([]shard.Take{returned}, decided); err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				n := int(legs.Load())
				if most = max(most, n); n > 3 {
					t.Errorf("seed %d: a give-back of what source %d has decided makes %d legs", seed, source, n)
				}
			}
		})
	}
	if most != 3 {
		t.Errorf("at most %d legs were seen, want three", most)
	}
}

func (c *ownershipCluster) index(id string) int {
	i, _ := c.any().router.View().Index(id)
	return i
}

// anyKey returns a key that these nodes own and stand by for.
func (c *ownershipCluster) anyKey(owner, standby string) ring.Key {
	return c.keysOf(owner, standby, 1)[0]
}

// keysOf returns so many keys that these nodes own and stand by for.
func (c *ownershipCluster) keysOf(owner, standby string, n int) (keys []ring.Key) {
	r := c.any().router.View().Ring
	for i := 0; len(keys) < n; i++ {
		p := ownershipKey(i).Partition(r.Partitions())
		if r.Owner(p) == c.index(owner) && r.Standby(p) == c.index(standby) {
			keys = append(keys, ownershipKey(i))
		}
	}
	return keys
}

// A refund that an owner may have counted, and has not answered, is sent to no other node: it would be counted there, or passed on to
// the owner, once more. What was not sent to an owner is.
func TestRefundIsSentOnce(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.nodes[0].ask(t.Context(), take(k, 10, 8))
		resume := c.nodes[1].stall()
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Undecided || took != DefaultAttemptTimeout {
			t.Errorf("by the owner's silence: %+v after %v", g, took)
		}
		c.cut(c.nodes[3], c.nodes[1])
		synctest.Wait()
		if g, _ := c.nodes[3].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Undecided {
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

// A refund that the owner may not count yet, and that the standby may have counted, is not asked for again.
func TestRefundToASilentStandbyIsSentOnce(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.keyWith(1, 2, 0)
		c.nodes[0].ask(t.Context(), take(k, 10, 8))
		c.noCopies = true
		c.believe(c.nodes[1], k, c.nodes[1])
		l.move(c.partition(k), -1)
		resume := c.nodes[2].stall()
		time.AfterFunc(DefaultAttemptTimeout/2, func() { l.move(c.partition(k), 1) })
		if g, _ := c.nodes[0].ask(t.Context(), take(k, 10, -3)); g.Takes[0].Source != shard.Undecided {
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
		if groups[0].Takes[0].Source != shard.Undecided || groups[1].Takes[0].Source != shard.Owner {
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
