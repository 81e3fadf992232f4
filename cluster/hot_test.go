package cluster

import (
	"context"
	"fmt"
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

const hammerEvery = 100 * time.Microsecond // 10,000 in a second through each node

// hammer asks for one token of every take through every node, so often, and returns how
// many groups were allowed.
func (c *testCluster) hammer(times int, take shard.Take) (allowed int64) {
	for range times {
		for _, n := range c.nodes {
			if g, _ := n.ask(c.t.Context(), take); g.Allowed {
				allowed++
			}
		}
		time.Sleep(hammerEvery)
	}
	return allowed
}

func (c *testCluster) remembered() (checks float64) {
	for _, n := range c.nodes {
		checks += testutil.ToFloat64(n.router.metrics.remembered)
	}
	return checks
}

func (c *testCluster) fromLoans() (checks float64) {
	for _, n := range c.nodes {
		checks += testutil.ToFloat64(n.router.metrics.lentChecks)
	}
	return checks
}

func allAlgorithms() (limits []algorithms.Limit) {
	for _, name := range algorithms.Names() {
		a, _ := algorithms.Parse(name)
		limits = append(limits, algorithms.Limit{Algorithm: a, Limit: 2000, Window: int64(time.Hour)})
	}
	return limits
}

// Whatever is lent and remembered, one hot counter admits its limit, no more, and in the
// end no less, and its owner is asked for few of the checks that it denies.
func TestFloodOnOneHotCounter(t *testing.T) {
	for _, l := range allAlgorithms() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				owner := c.nodes[1]
				hot := shard.Take{Key: c.ownedBy(owner, 0), Limit: l, Cost: 1}
				most := int64(2000)
				if l.Algorithm.Drains() {
					most++ // flows out in 1.8 s
				}
				allowed := c.hammer(3000, hot)
				if allowed < 2000 || allowed > most {
					t.Errorf("%d allowed, want %d to %d", allowed, 2000, most)
				}
				if lends := algorithms.LentUntil(&l, &algorithms.Decision{ResetAt: 1}) > 0; lends != (c.fromLoans() > 100) {
					t.Errorf("%v checks were decided from loans", c.fromLoans())
				}
				before := owner.takes.Load()
				if again := c.hammer(3000, hot); again > most-2000 {
					t.Errorf("%d more allowed", again)
				}
				if asked := owner.takes.Load() - before; asked > 2*3000/20 {
					t.Errorf("the owner was asked %d times for 6000 checks", asked)
				}
			})
		})
	}
}

// While a flood is on, nobody is denied what the owner would have let through, except by
// what is lent: what was allowed and what is lent make up the limit at any time.
func TestWhatIsAllowedAndLentIsTheLimit(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 2000, 1)
		var allowed int64
		for range 100 {
			allowed += c.hammer(20, hot)
			if used, lent := c.used(hot), c.lent(hot.Key); used != allowed+lent {
				t.Fatalf("%d used, %d allowed and %d lent", used, allowed, lent)
			}
		}
	})
}

// Where a token comes back every 10 ms, its owner is not asked much more often.
func TestFloodOfShortDenials(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := shard.Take{Key: c.ownedBy(c.nodes[1], 0), Cost: 1, Limit: algorithms.Limit{
			Algorithm: algorithms.TokenBucket, Limit: 100, Window: int64(time.Second),
		}}
		c.hammer(1000, hot)
		before := c.nodes[1].takes.Load()
		if allowed := c.hammer(3000, hot); allowed != 30 {
			t.Errorf("%d allowed in 300 ms, want 30", allowed)
		}
		if asked := c.nodes[1].takes.Load() - before; asked > 4*30 {
			t.Errorf("the owner was asked %d times for 6000 checks", asked)
		}
	})
}

// A batch is spared the way as well.
func TestFloodInBatches(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot, cold := take(c.ownedBy(c.nodes[1], 0), 2000, 1), take(c.ownedBy(c.nodes[1], 1), 1<<30, 1)
		allowed := 0
		batch := func(n *testNode) {
			groups := make([]shard.Group, 20)
			for i := range groups {
				groups[i].Takes = []shard.Take{hot}
			}
			groups[7].Takes[0] = cold
			n.router.Decide(t.Context(), groups)
			for i := range groups {
				if i != 7 && groups[i].Allowed {
					allowed++
				}
			}
			if !groups[7].Allowed || groups[7].Takes[0].Source != shard.Owner && groups[7].Takes[0].Source != shard.Lent {
				t.Fatalf("beside the hot ones: %+v", groups[7])
			}
		}
		for range 200 {
			for _, n := range c.nodes {
				batch(n)
			}
			time.Sleep(hammerEvery)
		}
		if allowed != 2000 {
			t.Errorf("%d allowed, want 2000", allowed)
		}
		before := c.nodes[1].takes.Load()
		for range 200 {
			batch(c.nodes[0])
			time.Sleep(hammerEvery)
		}
		if asked := c.nodes[1].takes.Load() - before; asked > 200/10 {
			t.Errorf("the owner was asked %d times for 4000 checks", asked)
		}
	})
}

// exhausted is a cluster whose hot counter is used up, and every node remembers that.
func exhausted(t *testing.T, f func(t *testing.T, c *testCluster, hot shard.Take)) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 200, 1)
		c.hammer(300, hot)
		before := c.remembered()
		if c.hammer(1, hot); c.remembered() != before+2 {
			t.Fatalf("%v checks were answered from memory", c.remembered()-before)
		}
		f(t, c, hot)
	})
}

func TestRememberedDenialIsTheOwnersDecision(t *testing.T) {
	for _, l := range allAlgorithms() {
		t.Run(l.Algorithm.String(), func(t *testing.T) {
			inCluster(t, func(t *testing.T, c *testCluster) {
				hot := shard.Take{Key: c.ownedBy(c.nodes[1], 0), Limit: l, Cost: 1}
				c.hammer(1000, hot)
				before := c.remembered()
				for range 500 {
					time.Sleep(13 * time.Microsecond)
					want, _ := c.nodes[1].ask(t.Context(), hot)
					got, _ := c.nodes[0].ask(t.Context(), hot)
					if got.Allowed != want.Allowed || got.Takes[0] != want.Takes[0] {
						t.Fatalf("%+v, the owner says %+v", got, want)
					}
				}
				if n := c.remembered() - before; n < 400 {
					t.Errorf("%v of 500 were answered from memory", n)
				}
			})
		})
	}
}

// While one caller renews what is remembered, the others go on with it.
func TestRenewalHoldsUpOnlyOne(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		h := c.nodes[0].router.hot
		known := h.shard(hot.Key).counters[hot.Key]
		time.Sleep(time.Until(h.started.Add(time.Duration(known.denialSent) + maxPromise/2 + 1)))
		resume := c.nodes[1].stall()
		var renewed atomic.Bool
		go func() {
			g, _ := c.nodes[0].ask(t.Context(), hot)
			renewed.Store(g.Takes[0].Source == shard.Owner)
		}()
		synctest.Wait()
		if renewed.Load() {
			t.Error("the first was not sent to the owner")
		}
		if g, took := c.nodes[0].ask(t.Context(), hot); took != 0 || g.Allowed || g.Takes[0].Source != shard.Owner {
			t.Errorf("the second: %+v after %v", g, took)
		}
		resume()
		synctest.Wait()
		if !renewed.Load() || time.Duration(known.denialEnds-int64(time.Since(h.started))) < maxPromise*9/10 {
			t.Error("it was not renewed")
		}
	})
}

// What frees something is seen through every node as soon as it is answered.
func TestFreeingEndsRememberedDenials(t *testing.T) {
	for _, tc := range []struct {
		name  string
		group func(hot shard.Take) shard.Group
		freed int64
	}{
		{"reset", func(hot shard.Take) shard.Group { return shard.Group{Takes: []shard.Take{hot}, Reset: true} }, 200},
		{"refund", func(hot shard.Take) shard.Group {
			hot.Cost = -3
			return shard.Group{Takes: []shard.Take{hot}}
		}, 3},
		{"what is left of a client's lease", func(hot shard.Take) shard.Group {
			hot.Cost = -3
			return shard.Group{Takes: []shard.Take{hot}, LentAt: time.Now().UnixNano()}
		}, 3},
	} {
		for through := range 3 {
			t.Run(fmt.Sprintf("%s through node %d", tc.name, through), func(t *testing.T) {
				exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
					start := time.Now()
					groups := []shard.Group{tc.group(hot), {Takes: []shard.Take{take(c.ownedBy(c.nodes[2], 5), 10, 1)}}}
					c.nodes[through].router.Decide(t.Context(), groups)
					if groups[0].Takes[0].Source != shard.Owner || !groups[1].Allowed {
						t.Errorf("%+v", groups)
					}
					if took := time.Since(start); took == 0 || took > maxPromise {
						t.Errorf("it took %v", took)
					}
					for i, n := range c.nodes {
						if g, _ := n.ask(t.Context(), hot); !g.Allowed || g.Takes[0].Decision.Remaining >= tc.freed-int64(i) {
							t.Errorf("node %d afterwards: %+v", i, g)
						}
					}
				})
			})
		}
	}
}

// There is no instant at which the owner lets through what a peer still denies: from the
// first check on that has room, all have, until what was freed is used up.
func TestNobodyIsDeniedWhatTheOwnerAllows(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		refund := hot
		refund.Cost = -60
		var refunded sync.WaitGroup
		refunded.Go(func() {
			time.Sleep(time.Millisecond)
			if g, _ := c.nodes[0].ask(t.Context(), refund); g.Takes[0].Source != shard.Owner {
				t.Errorf("%+v", g)
			}
		})
		var allowed int
		for range 400 {
			for i, n := range c.nodes {
				g, _ := n.ask(t.Context(), hot)
				if !g.Allowed && allowed > 0 && allowed < 60 {
					t.Fatalf("node %d denied after %d were allowed", i, allowed)
				}
				if g.Allowed {
					allowed++
				}
			}
			time.Sleep(hammerEvery)
		}
		refunded.Wait()
		if allowed != 60 {
			t.Errorf("%d allowed, want 60", allowed)
		}
	})
}

// What a group that spans nodes gives back is counted when nobody remembers a denial.
func TestGiveBackWaitsForRememberedDenials(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		used := hot
		used.Decision.At = time.Now().UnixNano()
		c.nodes[1].links.promises.giveBack(c.nodes[1], []shard.Take{used})
		start := time.Now()
		for time.Since(start) < 2*maxPromise {
			atOwner, _ := c.nodes[1].ask(t.Context(), hot)
			if atOwner.Allowed {
				break
			}
			time.Sleep(hammerEvery)
		}
		took := time.Since(start)
		if took == 0 || took > maxPromise {
			t.Errorf("given back after %v", took)
		}
	})
}

func TestUnusedLoansComeBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
		allowed := c.hammer(500, hot)
		if c.used(hot) == allowed {
			t.Fatal("nothing was lent")
		}
		time.Sleep(2*idleLoan + time.Millisecond)
		if used := c.used(hot); used != allowed {
			t.Errorf("%d used for %d that were allowed", used, allowed)
		}
		allowed += c.hammer(500, hot)
		c.nodes[0].router.Close()
		c.nodes[2].router.Close()
		if used := c.used(hot); used != allowed {
			t.Errorf("%d used for %d that were allowed, after the borrowers have closed", used, allowed)
		}
	})
}

// A borrower that closes while its peer is slow to answer waits for it, so that what is queued
// behind the question arrives; and not for ever for one that does not answer.
func TestUnusedLoansComeBackFromBehindAQuestion(t *testing.T) {
	for slow, back := range map[time.Duration]bool{closeGrace / 2: true, 2 * closeGrace: false} {
		inCluster(t, func(t *testing.T, c *testCluster) {
			hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
			allowed := c.hammer(500, hot)
			lent := c.used(hot) - allowed
			resume := c.nodes[1].stall()
			asked := make(chan struct{})
			go func() {
				defer close(asked)
				peek := []shard.Group{{Peek: true, Takes: []shard.Take{hot}}}
				c.nodes[0].router.Decide(t.Context(), peek)
			}()
			synctest.Wait()
			time.AfterFunc(slow, resume)
			start := time.Now()
			c.nodes[0].router.Close()
			c.nodes[2].router.Close()
			took := time.Since(start)
			<-asked
			synctest.Wait()
			if used := c.used(hot); lent == 0 || (used == allowed) != back || took > 3*closeGrace {
				t.Errorf("%v: %d used for %d that were allowed, %d lent, closed after %v", slow, used, allowed, lent, took)
			}
		})
	}
}

// What is lent is for its window: nothing of it is used later.
func TestLoanIsNotUsedAfterItsWindow(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		const window = 50 * time.Millisecond
		hot := shard.Take{Key: c.ownedBy(c.nodes[1], 0), Cost: 1, Limit: algorithms.Limit{
			Algorithm: algorithms.FixedWindow, Limit: 100_000, Window: int64(window),
		}}
		for range 20 {
			time.Sleep(time.Until(time.Now().Truncate(window).Add(window)))
			c.hammer(int(window/hammerEvery)-5, hot)
			if g, _ := c.nodes[0].ask(t.Context(), hot); g.Takes[0].Source != shard.Lent || c.lent(hot.Key) == 0 {
				t.Fatalf("nothing is lent: %+v", g)
			}
			time.Sleep(time.Until(time.Now().Truncate(window).Add(window)))
			if g, _ := c.nodes[0].ask(t.Context(), hot); g.Takes[0].Source != shard.Owner {
				t.Fatalf("in the next window: %+v", g)
			}
		}
	})
}

// What is left of one loan counts on beside the next if both are of one window, and as
// long as both may be used.
func TestLoansAddUpWithinAWindow(t *testing.T) {
	const minute = int64(time.Minute)
	window := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: minute}
	bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: minute}
	for _, tc := range []struct {
		name       string
		limit      algorithms.Limit
		sent, at   int64 // of the second; the first is sent at 0, lent at 100 minutes, and valid for 50 s
		left, ends int64
	}{
		{"the same window", window, 10, 100*minute + 20, 30, 50e9},
		{"the next window", window, 10, 101*minute + 20, 20, 10 + 50e9},
		{"of a bucket", bucket, 10, 100*minute + 20, 30, 50e9},
		{"the first is over", bucket, 60e9, 101 * minute, 20, 60e9 + 50e9},
	} {
		c := &hotCounter{limit: tc.limit}
		for i, loan := range []shard.Loan{{Tokens: 10, At: 100 * minute}, {Tokens: 20, At: tc.at}} {
			loan.Until = loan.At + 50e9
			take := shard.Take{Limit: tc.limit, Cost: 1, Decision: algorithms.Decision{Allowed: true, At: loan.At, ResetAt: loan.At + minute}}
			c.borrow(&take, loan, int64(i)*tc.sent)
			if i == 0 {
				c.inherited = 10
			}
		}
		if inherited := tc.left - 20; c.left != tc.left || c.loanEnds != tc.ends || c.inherited != inherited {
			t.Errorf("%s: %d left until %d, %d of it inherited, want %d until %d, %d", tc.name, c.left, c.loanEnds, c.inherited, tc.left, tc.ends, inherited)
		}
	}
}

// About 500 asks in a second make a counter hot, but not when others are in the way.
func TestWhatIsHot(t *testing.T) {
	for _, tc := range []struct {
		name   string
		every  time.Duration
		asks   int // each time
		others int // keys of the same slot, asked for once each time
		hot    bool
	}{
		{"300 in a second", 3333 * time.Microsecond, 1, 0, false},
		{"700 in a second", 1428 * time.Microsecond, 1, 0, true},
		{"one of many", 100 * time.Microsecond, 1, 9, false},
		{"as often as two others and more", time.Millisecond, 3, 2, true},
	} {
		h := newHotCounters(NewPromises(true, true), nil)
		var most int64
		for at := time.Duration(0); at < time.Second; at += tc.every {
			for range tc.asks {
				most = max(most, h.count(ring.Key{}, int64(at)))
			}
			for i := range uint64(tc.others) {
				h.count(ring.Key{Hi: (i + 1) << 48}, int64(at))
			}
		}
		if hot := most >= hotAsks; hot != tc.hot {
			t.Errorf("%s: %d asks in an epoch", tc.name, most)
		}
	}
}

// What is asked for now and then is asked of the owner.
func TestColdCounterIsAsked(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		cold := take(c.ownedBy(c.nodes[1], 0), 1000, 1)
		for range 500 {
			c.nodes[0].ask(t.Context(), cold)
			time.Sleep(3333 * time.Microsecond)
		}
		if asked := c.nodes[1].takes.Load(); asked != 500 || c.used(cold) != 500 {
			t.Errorf("the owner was asked %d times for 500 checks, and %d are used", asked, c.used(cold))
		}
	})
}

// A client's lease comes from the owner, whatever this node has borrowed itself.
func TestLeaseBesideALoan(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
		allowed := c.hammer(100, hot)
		for through, n := range c.nodes {
			for _, other := range [][]shard.Group{nil, {{Takes: []shard.Take{take(c.ownedBy(c.nodes[2], 3), 10, 1)}}}} {
				groups := append([]shard.Group{{Takes: []shard.Take{hot}, Lend: 50, Tokens: 1}}, other...)
				n.router.Decide(t.Context(), groups)
				if g := groups[0]; !g.Allowed || g.Loan.Tokens != 50 || g.Loan.Until <= g.Loan.At {
					t.Errorf("through node %d: %+v", through, g)
				}
				allowed += 51
			}
		}
		if used, lent := c.used(hot), c.lent(hot.Key); used != allowed+lent {
			t.Errorf("%d used, %d allowed or lent to clients, %d lent to nodes", used, allowed, lent)
		}
	})
}

// What is lent is used on when its counter has moved, but what is left of it is given back
// to nobody who has not lent it.
func TestLoansMoveWithTheirCounter(t *testing.T) {
	for name, more := range map[string]int{"left": 1, "used up": 500} {
		inCluster(t, func(t *testing.T, c *testCluster) {
			asker, from, to := c.nodes[0], c.nodes[1], c.nodes[2]
			hot := take(c.ownedBy(from, 0), 100_000, 1)
			var allowed int64
			ask := func(times int) {
				for range times {
					if g, _ := asker.ask(t.Context(), hot); g.Allowed {
						allowed++
					}
					time.Sleep(hammerEvery)
				}
			}
			ask(500)
			lent := c.lent(hot.Key)
			c.fetch(hot.Key, from, to)
			asker.ask(t.Context(), take(hot.Key, 100_000, 0)) // finds out
			ask(more)
			lost := max(0, lent-int64(more))
			if spent := lent - c.lent(hot.Key); lent < 10 || more == 1 && spent != 1 {
				t.Errorf("%s: %d of %d were used on", name, spent, lent)
			}
			time.Sleep(2*idleLoan + time.Millisecond)
			synctest.Wait()
			look := take(hot.Key, 100_000, 0)
			groups := []shard.Group{{Takes: []shard.Take{look}}}
			to.shard.Decide(groups)
			if used := 100_000 - groups[0].Takes[0].Decision.Remaining; used != allowed+lost {
				t.Errorf("%s: %d used for %d that were allowed and %d that were lost", name, used, allowed, lost)
			}
		})
	}
}

// Loans and denials are of one limit, and denials end with those who have promised them.
func TestWhatIsKnownBelongsToItsLimit(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		raised := hot
		raised.Limit.Limit = 201
		if g, _ := c.nodes[0].ask(t.Context(), raised); !g.Allowed || g.Takes[0].Decision.Remaining != 0 {
			t.Errorf("with a higher limit: %+v", g)
		}
		c.hammer(100, raised)
		c.setView([]Member{{ID: "a", Address: "a:1", Incarnation: 1}, {ID: "c", Address: "c:1", Incarnation: 1}})
		time.Sleep(maxPromise)
		owner := c.view.Ring.Owner(hot.Key.Partition(c.view.Ring.Partitions()))
		asker := c.nodes[2*(1-owner)]
		if g, _ := asker.ask(t.Context(), raised); !g.Allowed || g.Takes[0].Decision.Remaining < 150 {
			t.Errorf("of a new owner: %+v", g)
		}
	})
}

// Costs above what is left, looks and groups of several takes are for the owner.
func TestWhatIsNotKnownIsAsked(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		two, other := hot, take(c.ownedBy(c.nodes[1], 1), 10, 1)
		two.Cost = 2
		for _, group := range []shard.Group{
			{Takes: []shard.Take{hot}, Peek: true},
			{Takes: []shard.Take{hot, other}},
			{Takes: []shard.Take{two}},
		} {
			want := shard.Group{Takes: append([]shard.Take(nil), group.Takes...), Peek: group.Peek}
			groups := []shard.Group{group}
			before := c.nodes[1].frames.Load()
			c.nodes[0].router.Decide(t.Context(), groups)
			c.nodes[1].shard.Decide([]shard.Group{want})
			if c.nodes[1].frames.Load() == before {
				t.Errorf("the owner was not asked: %+v", groups[0])
			}
			for i := range want.Takes {
				if groups[0].Takes[i] != want.Takes[i] {
					t.Errorf("%+v, want %+v", groups[0].Takes[i], want.Takes[i])
				}
			}
		}
	})
}

func TestLoanServesAnyCostThatFits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 1_000_000, 3)
		if got := c.hammer(1000, hot); got != 3000 {
			t.Errorf("%d of 3000 allowed", got)
		}
		time.Sleep(3 * idleLoan)
		if used := c.used(hot); used != 9000 {
			t.Errorf("%d used, want 9000", used)
		}
		if c.fromLoans() < 1500 {
			t.Errorf("%v checks were decided from loans", c.fromLoans())
		}
	})
}

func TestLentAnswers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 1_000_000, 1)
		last := int64(1_000_000)
		for lent := 0; lent < 500; {
			g, _ := c.nodes[0].ask(t.Context(), hot)
			d := g.Takes[0].Decision
			if g.Takes[0].Source == shard.Lent {
				lent++
				if d.Remaining != last-1 || d.At != time.Now().UnixNano() || d.RetryAt != d.At || d.Delay != 0 {
					t.Fatalf("%+v after %d remained", d, last)
				}
			}
			if g.Loan != (shard.Loan{}) || g.Lend != 0 {
				t.Fatalf("the caller is told of a loan: %+v", g)
			}
			last = d.Remaining
			if g.Takes[0].Source == shard.Owner { // which does not count what is left of a loan
				last = 1_000_000 - c.used(hot) + c.lent(hot.Key)
			}
			time.Sleep(hammerEvery)
		}
	})
}

// lent returns how much of a counter is lent and was not used.
func (c *testCluster) lent(k ring.Key) (tokens int64) {
	for _, n := range c.nodes {
		s := n.router.hot.shard(k)
		s.mu.Lock()
		if known := s.counters[k]; known != nil {
			tokens += known.left
		}
		s.mu.Unlock()
	}
	return tokens
}

// Switched off, every check is asked for, whoever of the two is.
func TestSwitchedOff(t *testing.T) {
	for _, askerOn := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestClusterOf(t, NewPromises(askerOn, askerOn), NewPromises(!askerOn, !askerOn))
			defer c.close()
			hot := take(c.ownedBy(c.nodes[1], 0), 200, 1)
			if allowed := c.hammer(500, hot); allowed != 200 {
				t.Errorf("%d allowed, want 200", allowed)
			}
			if asked := c.nodes[1].takes.Load(); asked != 500 || c.fromLoans()+c.remembered() != 0 {
				t.Errorf("the owner was asked %d times for 500 checks", asked)
			}
			start := time.Now()
			c.nodes[0].router.Decide(context.Background(), []shard.Group{{Takes: []shard.Take{hot}, Reset: true}})
			if took := time.Since(start); took != 0 {
				t.Errorf("a reset took %v", took)
			}
		})
	}
}

func TestHotCountersAreBounded(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		h := c.nodes[0].router.hot
		l := c.nodes[0].router.table.Load().peers[1].lanes[0]
		for round := range 2 {
			for i := range 4 * maxHot {
				take := take(ring.Key{Hi: uint64(i), Lo: uint64(round)}, 10, 1)
				s := h.shard(take.Key)
				s.mu.Lock()
				found := s.find(&take, l, int64(time.Since(h.started)))
				if full := round == 0 && i >= maxHot; (found == nil) != full {
					t.Fatalf("round %d: counter %d: %+v", round, i, found)
				}
				if found != nil {
					found.denialEnds = int64(time.Since(h.started)) + int64(time.Second)
				}
				s.mu.Unlock()
				if round == 1 && i == maxHot-1 {
					break
				}
			}
			time.Sleep(time.Second)
		}
	})
}
