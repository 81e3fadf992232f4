package cluster

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// limitOf returns a limit per day, of which a window may regain nothing during a test.
func limitOf(a algorithms.Algorithm, limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: a, Limit: limit, Window: int64(24 * time.Hour)}
}

// TestDeniedGroupsDenyNoOthers has a user without room ask for all tokens of an organisation. While the owner of the
// user's limit has not answered, another user asks for some: alone, in a batch, and with a limit of its own on a third
// node. It waits, and is allowed.
func TestDeniedGroupsDenyNoOthers(t *testing.T) {
	for _, a := range algorithms.Names() {
		algorithm, _ := algorithms.Parse(a)
		t.Run(a, func(t *testing.T) {
			inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
				limit := limitOf(algorithm, 200)
				user := shard.Take{Key: c.ownedBy(c.nodes[1], 0), Limit: perHour(10), Cost: 10}
				c.nodes[0].ask(t.Context(), user)
				for i, others := range [][]shard.Take{nil, {take(c.ownedBy(c.nodes[0], 1), 200, 20)}} {
					for j, cold := range []bool{true, false} {
						org := shard.Take{Key: c.ownedBy(c.nodes[2], 2*i+j), Limit: limit, Cost: 200}
						if cold {
							c.nodes[0].router.full.slot(user.Key).Store(0)
						}
						resume := c.nodes[1].stall()
						denied, all := make(chan shard.Group), org
						go func() {
							g, _ := c.nodes[0].ask(t.Context(), user, all)
							denied <- g
						}()
						time.Sleep(DefaultAttemptTimeout / 2)
						time.AfterFunc(DefaultAttemptTimeout/4, resume)
						org.Cost = 20
						some := []shard.Group{{Takes: append([]shard.Take{org}, others...)}, {}}
						c.nodes[2].router.Decide(t.Context(), some)
						if !some[0].Allowed {
							d := &some[0].Takes[0].Decision
							t.Errorf("case %d, %v: another user is denied for %v", i, cold, time.Duration(d.RetryAt-d.At))
						}
						if g := <-denied; g.Allowed {
							t.Errorf("case %d: a user without room is allowed", i)
						}
						if used := c.used(org); used != 20 {
							t.Errorf("case %d, %v: %d tokens of the organisation are used", i, cold, used)
						}
					}
				}
			})
		})
	}
}

// A group that stays denied has waited no longer than it may, and no longer than its caller.
func TestContendedWaitIsBounded(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
		for _, tc := range []struct{ timeout, most time.Duration }{
			{time.Hour, contendedFor * DefaultAttemptTimeout}, {10 * time.Millisecond, 10 * time.Millisecond},
		} {
			for _, n := range c.nodes {
				tentative := take(c.ownedBy(c.nodes[2], 0), 200, 190)
				tentative.Tentative = true
				first := []shard.Group{{Takes: []shard.Take{tentative}}}
				c.nodes[2].shard.Decide(first) // and nothing becomes of it
				ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
				g, took := n.ask(ctx, take(tentative.Key, 200, 20))
				d := &g.Takes[0].Decision
				if wait := time.Duration(d.RetryAt - d.At); g.Allowed || took > tc.most || took < tc.most/3 || wait > 250*time.Millisecond {
					t.Errorf("%s: allowed %v after %v, to come back in %v", n.id, g.Allowed, took, wait)
				}
				cancel()
				c.nodes[2].shard.Return(first[0].Takes)
			}
		}
	})
}

// What a group has taken in the end is not waited for: a later check is denied at once, for as long as the limit
// says.
func TestGrantedGroupsDelayNoCheck(t *testing.T) {
	for _, a := range algorithms.Names() {
		algorithm, _ := algorithms.Parse(a)
		t.Run(a, func(t *testing.T) {
			inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
				org := shard.Take{Key: c.ownedBy(c.nodes[2], 0), Limit: limitOf(algorithm, 5), Cost: 1}
				for i := range 5 {
					own := take(c.ownedBy(c.nodes[1], i), 10, 1)
					if g, _ := c.nodes[i%3].ask(t.Context(), own, org); !g.Allowed {
						t.Fatalf("group %d is denied: %+v", i, g)
					}
				}
				synctest.Wait()
				for _, n := range c.nodes {
					g, took := n.ask(t.Context(), org)
					if wait := time.Duration(g.Takes[0].Decision.RetryAt - g.Takes[0].Decision.At); g.Allowed || took > 0 || wait < time.Hour {
						t.Errorf("allowed %v after %v, to come back in %v", g.Allowed, took, wait)
					}
				}
			})
		})
	}
}

// Only takes that leave little of their limit are confirmed: of half of it, or less than 64 times their cost.
func TestPlentyIsNotConfirmed(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, tc := range []struct {
			limit int64
			kept  int64 // by node 1
		}{{1000, 0}, {100, 3}} { // of 100, 40 are left after 20 at a time
			there := func(i int) shard.Take { return take(c.ownedBy(c.nodes[1], int(tc.limit)+i), tc.limit, tc.limit/100) }
			before := c.nodes[1].kept.Load()
			for i := range 3 {
				scarce := there(0)
				if tc.limit == 100 {
					scarce.Cost = 20
				}
				if g, _ := c.nodes[0].ask(t.Context(), take(c.ownedBy(c.nodes[2], int(tc.limit)), 1e6, 1), scarce); !g.Allowed {
					t.Fatalf("group %d: %+v", i, g)
				}
			}
			c.nodes[0].ask(t.Context(), there(1)) // what is confirmed with the next message
			synctest.Wait()
			if got := c.nodes[1].kept.Load() - before; got != tc.kept {
				t.Errorf("limit %d: %d takes were confirmed, want %d", tc.limit, got, tc.kept)
			}
		}
	})
}

// TestGroupsThatMeet has groups of two limits meet, both taken in part by others, with room for half of them: that half
// is allowed.
func TestGroupsThatMeet(t *testing.T) {
	for _, a := range algorithms.Names() {
		algorithm, _ := algorithms.Parse(a)
		t.Run(a, func(t *testing.T) {
			inForgetfulCluster(t, func(t *testing.T, c *testCluster) {
				for round := range 20 {
					one := shard.Take{Key: c.ownedBy(c.nodes[1], round), Limit: limitOf(algorithm, 6), Cost: 1}
					two := shard.Take{Key: c.ownedBy(c.nodes[2], round), Limit: limitOf(algorithm, 6), Cost: 1}
					groups := make([]shard.Group, 12)
					var all sync.WaitGroup
					for i := range groups {
						all.Go(func() {
							groups[i].Takes = []shard.Take{one, two}
							c.nodes[i%3].router.Decide(t.Context(), groups[i:i+1])
						})
					}
					all.Wait()
					allowed := 0
					for i := range groups {
						if groups[i].Allowed {
							allowed++
						}
					}
					if a, b := c.used(one), c.used(two); allowed != 6 || a != 6 || b != 6 {
						t.Errorf("round %d: %d are allowed, %d and %d tokens are used", round, allowed, a, b)
					}
				}
			})
		})
	}
}
