package cluster

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

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
		time.Sleep(time.Until(h.started.Add(time.Duration(known.denialSent) + maxDenialLease/2 + 1)))
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
		if !renewed.Load() || time.Duration(known.denialEnds-int64(time.Since(h.started))) < maxDenialLease*9/10 {
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
					if took := time.Since(start); took == 0 || took > maxDenialLease {
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

// There is no instant at which the owner allows what a peer still denies: from the first check on that has
// room, all have, until what was freed is used up.
func TestDenialLeaseDeniesOnlyWhatTheOwnerDenies(t *testing.T) {
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

// What a group that spans nodes gives back is counted when no node remembers a denial.
func TestGiveBackWaitsForRememberedDenials(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		used := hot
		used.Decision.At = time.Now().UnixNano()
		c.nodes[1].conns.router.own.denialLeases.giveBack(c.nodes[1], []shard.Take{used})
		start := time.Now()
		for time.Since(start) < 2*maxDenialLease {
			atOwner, _ := c.nodes[1].ask(t.Context(), hot)
			if atOwner.Allowed {
				break
			}
			time.Sleep(hammerEvery)
		}
		took := time.Since(start)
		if took == 0 || took > maxDenialLease {
			t.Errorf("given back after %v", took)
		}
	})
}

// About 500 asks in a second make a counter hot, but not when others are in the way.
func TestHotThreshold(t *testing.T) {
	for _, tc := range []struct {
		name   string
		every  time.Duration
		calls  int // each time
		others int // keys of the same slot, asked for once each time
		hot    bool
	}{
		{"300 in a second", 3333 * time.Microsecond, 1, 0, false},
		{"700 in a second", 1428 * time.Microsecond, 1, 0, true},
		{"one of many", 100 * time.Microsecond, 1, 9, false},
		{"as often as two others and more", time.Millisecond, 3, 2, true},
	} {
		h := newHotCounters(NewGivenDenialLeases(true, true), nil)
		var most int64
		for at := time.Duration(0); at < time.Second; at += tc.every {
			for range tc.calls {
				most = max(most, h.count(ring.Key{}, int64(at)))
			}
			for i := range uint64(tc.others) {
				h.count(ring.Key{Hi: (i + 1) << 48}, int64(at))
			}
		}
		if hot := most >= hotAsks; hot != tc.hot {
			t.Errorf("%s: %d asks in an interval", tc.name, most)
		}
	}
}

// What is asked for now and then is asked of the owner.
func TestColdCounterIsForwarded(t *testing.T) {
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

// Leases and denials are of one limit, and denials end with the nodes that have given them.
func TestLeasesBelongToTheirLimit(t *testing.T) {
	exhausted(t, func(t *testing.T, c *testCluster, hot shard.Take) {
		raised := hot
		raised.Limit.Limit = 201
		if g, _ := c.nodes[0].ask(t.Context(), raised); !g.Allowed || g.Takes[0].Decision.Remaining != 0 {
			t.Errorf("with a higher limit: %+v", g)
		}
		c.hammer(100, raised)
		c.setView([]Member{{ID: "a", Address: "a:1", Incarnation: 1}, {ID: "c", Address: "c:1", Incarnation: 1}})
		time.Sleep(maxDenialLease)
		owner := c.view.Ring.Owner(hot.Key.Partition(c.view.Ring.Partitions()))
		asker := c.nodes[2*(1-owner)]
		if g, _ := asker.ask(t.Context(), raised); !g.Allowed || g.Takes[0].Decision.Remaining < 150 {
			t.Errorf("of a new owner: %+v", g)
		}
	})
}

// Costs above what is left, looks and groups of several takes are for the owner.
func TestTakesThatLeasesDoNotDecide(t *testing.T) {
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

// Switched off, every check goes to the owner, with either of the two off.
func TestSwitchedOff(t *testing.T) {
	for _, askerOn := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c := newTestClusterOf(t, NewGivenDenialLeases(askerOn, askerOn), NewGivenDenialLeases(!askerOn, !askerOn))
			defer c.close()
			hot := take(c.ownedBy(c.nodes[1], 0), 200, 1)
			if allowed := c.hammer(500, hot); allowed != 200 {
				t.Errorf("%d allowed, want 200", allowed)
			}
			if asked := c.nodes[1].takes.Load(); asked != 500 || c.fromLeases()+c.remembered() != 0 {
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
		conn := c.nodes[0].router.table.Load().peers[1].conns[0]
		for round := range 2 {
			for i := range 4 * maxHot {
				take := take(ring.Key{Hi: uint64(i), Lo: uint64(round)}, 10, 1)
				s := h.shard(take.Key)
				s.mu.Lock()
				found := s.find(&take, conn, int64(time.Since(h.started)))
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
