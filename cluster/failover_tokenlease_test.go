package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// TestKilledLender kills an owner after it has lent tokens. The node that decides in its place knows of all
// leases but those of the last instants: it is told at once of all that bring a counter over a
// twentieth of its limit, and of the rest within feedEvery.
func TestKilledLender(t *testing.T) {
	const limit = 1000
	for _, tc := range []struct {
		name   string
		lend   int64         // at a time
		leases int           // one after the other
		later  time.Duration // the owner is killed
		over   int64         // at most
	}{
		{"one lease of a tenth", limit / 10, 1, 2 * hurryEvery, 0},
		{"several", limit / 20, 5, 2 * hurryEvery, 0},
		{"little ones", 20, 2, feedEvery + hurryEvery, 0},
		{"little ones that no node was told of yet", 20, 2, 0, limit / 20},
		{"one that no node was told of yet", limit / 10, 1, 0, limit/10 + 1}, // what was granted in no time
	} {
		t.Run(tc.name, func(t *testing.T) {
			inOwners(t, func(t *testing.T, c *ownershipCluster) {
				c.start("a", "b", "c")
				c.settled()
				c.replicated()
				b, l := c.alive["b"], algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: limit, Window: int64(24 * time.Hour)}
				key := ownershipKey(0)
				for i := 0; b.router.Owner(key) != "b"; i++ {
					key = ownershipKey(i)
				}
				ask := func(n *ownershipNode, lend int64) shard.Group {
					g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: l, Cost: 1}}, Tokens: 1, Lend: lend}}
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					n.router.Decide(ctx, g)
					return g[0]
				}
				given := int64(0)
				for range tc.leases {
					g := ask(b, tc.lend)
					if g.TokenLease.Tokens != tc.lend || !g.Allowed {
						t.Fatalf("lent %+v", g)
					}
					given += 1 + g.TokenLease.Tokens
					if tc.later > 0 {
						time.Sleep(2 * hurryEvery)
					}
				}
				if tc.later > 0 {
					time.Sleep(tc.later)
					synctest.Wait()
				}
				c.crash("b")
				for a := c.alive["a"]; ; given++ {
					if g := ask(a, 0); !g.Allowed {
						break
					} else if g.Takes[0].Source == shard.Undecided {
						t.Fatal("no node has decided")
					}
				}
				if over := given - limit; over > tc.over || over < 0 {
					t.Errorf("%d beyond the limit, at most %d are allowed", over, tc.over)
				} else {
					t.Logf("%d beyond the limit", over)
				}
			})
		})
	}
}
