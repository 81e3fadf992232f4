package cluster

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// withoutC runs a test in a bubble with a cluster of three of which c is dead.
func withoutC(t *testing.T, f func(t *testing.T, c *testCluster)) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.kill(c.nodes[2])
		synctest.Wait()
		f(t, c)
	})
}

func (c *testCluster) take(owner, limit, cost int64, p shard.Policy) shard.Take {
	t := take(c.ownedBy(c.nodes[owner], 0), limit, cost)
	t.OnFailure = p
	return t
}

// used returns how much was taken from a counter on the node that owns it.
func (c *testCluster) used(t shard.Take) int64 {
	synctest.Wait() // no caller waits for a give-back
	t.Cost = 0
	owner := c.view.Ring.Owner(t.Key.Partition(c.view.Ring.Partitions()))
	groups := []shard.Group{{Takes: []shard.Take{t}}}
	c.nodes[owner].shard.Decide(groups)
	return t.Limit.Capacity() - groups[0].Takes[0].Decision.Remaining
}

func TestFailClosed(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		closed := c.take(2, 10, 1, shard.FailClosed)
		shadow := closed
		shadow.Shadow = true
		open := c.take(2, 10, 1, shard.FailOpen)
		here, there := c.take(0, 10, 1, shard.FailClosed), c.take(1, 10, 1, shard.FailClosed)
		for _, tc := range []struct {
			name    string
			takes   []shard.Take
			allowed bool
		}{
			{"alone", []shard.Take{closed}, false},
			{"a shadow", []shard.Take{shadow}, true},
			{"open", []shard.Take{open}, true},
			{"open and closed", []shard.Take{open, closed}, false},
			{"with answered ones", []shard.Take{here, there, closed}, false},
			{"answered", []shard.Take{here, there, open}, true},
		} {
			groups := []shard.Group{{Takes: tc.takes}, {}} // a batch walks the same way
			c.nodes[0].router.Decide(t.Context(), groups)
			if groups[0].Allowed != tc.allowed {
				t.Errorf("%s, in a batch: allowed %v", tc.name, groups[0].Allowed)
			}
			if tc.allowed {
				continue // to ask twice counts twice
			}
			g, took := c.nodes[0].ask(t.Context(), tc.takes...)
			if last := g.Takes[len(g.Takes)-1]; g.Allowed || took != 0 || last.Source != shard.Undecided || last.Decision != (algorithms.Decision{}) {
				t.Errorf("%s: %+v after %v", tc.name, g, took)
			}
		}
		if a, b := c.used(here), c.used(there); a != 1 || b != 1 {
			t.Errorf("%d and %d taken, want what the one allowed group has", a, b)
		}
	})
}

// 10 among three is 4 each, and a burst of 6 is 2.
func TestFailLocalHoldsThisNodeToItsShare(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		window := c.take(2, 10, 1, shard.FailLocal)
		bucket := window
		bucket.Limit.Algorithm, bucket.Limit.Burst, bucket.Key = algorithms.TokenBucket, 6, c.ownedBy(c.nodes[2], 1)
		for _, tc := range []struct {
			take  shard.Take
			share int64
		}{{window, 4}, {bucket, 2}} {
			for _, n := range c.nodes[:2] {
				for i := range tc.share + 1 {
					g, _ := n.ask(t.Context(), tc.take)
					if got := g.Takes[0]; got.Source != shard.Local || g.Allowed != (i < tc.share) || got.Decision.Remaining != max(0, tc.share-i-1) || got.Limit != tc.take.Limit {
						t.Errorf("%s, take %d: %+v", n.id, i, g)
					}
				}
			}
		}
		c.serve(c.nodes[2])
		time.Sleep(2 * probeEvery)
		if g, _ := c.nodes[0].ask(t.Context(), window); g.Takes[0].Source != shard.Owner || g.Takes[0].Decision.Remaining != 9 {
			t.Errorf("the owner is back: %+v", g)
		}
	})
}

// The share is counted apart from what the owner counts in the same tables.
func TestShareIsNotTheOwnersCounter(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		mine := c.take(0, 10, 3, shard.FailLocal)
		c.nodes[0].ask(t.Context(), mine)
		mine.Source = shard.Undecided
		g := shard.Group{Takes: []shard.Take{mine}}
		c.nodes[0].router.applyPolicies(c.nodes[0].router.table.Load(), &g)
		if !g.Allowed || g.Takes[0].Source != shard.Local || g.Takes[0].Decision.Remaining != 1 || c.used(mine) != 3 {
			t.Errorf("%+v, %d used at the owner", g, c.used(mine))
		}
	})
}

func TestLocalTakesAreOneStepOfTheirGroup(t *testing.T) {
	withoutC(t, func(t *testing.T, c *testCluster) {
		n := c.nodes[0]
		two := c.take(2, 30, 2, shard.FailLocal) // 10 here
		one := c.take(2, 3, 2, shard.FailLocal)  // 1 here
		one.Key = c.ownedBy(c.nodes[2], 1)
		here, there := c.take(0, 10, 2, shard.FailLocal), c.take(1, 10, 2, shard.FailLocal)
		look := func(take shard.Take) int64 {
			take.Cost = 0
			g, _ := n.ask(t.Context(), take)
			return g.Takes[0].Decision.Remaining
		}
		g, _ := n.ask(t.Context(), here, there, two, one)
		if g.Allowed || look(two) != 10 || c.used(here) != 0 || c.used(there) != 0 {
			t.Errorf("denied by a share: %+v, %d, %d and %d used", g, 10-look(two), c.used(here), c.used(there))
		}
		if r := g.Takes[0].Decision.Remaining + g.Takes[1].Decision.Remaining; r != 20 {
			t.Errorf("the answers tell of tokens that were given back: %+v", g)
		}
		full := c.take(1, 1, 2, shard.FailLocal)
		full.Key = c.ownedBy(c.nodes[1], 1)
		if g, _ = n.ask(t.Context(), here, full, two); g.Allowed || look(two) != 10 || c.used(here) != 0 || g.Takes[2].Source != shard.Local {
			t.Errorf("denied by an owner: %+v, %d left", g, look(two))
		}
		one.Shadow = true
		if g, _ = n.ask(t.Context(), here, there, two, one); !g.Allowed || look(two) != 8 || c.used(here) != 2 || c.used(there) != 2 {
			t.Errorf("allowed: %+v", g)
		}
		groups := []shard.Group{{Peek: true, Takes: []shard.Take{here, two}}}
		if n.router.Decide(t.Context(), groups); !groups[0].Allowed || look(two) != 8 {
			t.Errorf("a peek has taken something: %+v", groups)
		}
		groups[0] = shard.Group{Reset: true, Takes: []shard.Take{here, two}}
		if n.router.Decide(t.Context(), groups); !groups[0].Allowed || look(two) != 10 || c.used(here) != 0 {
			t.Errorf("reset: %+v", groups)
		}
	})
}

func TestPoliciesWithoutAView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := shard.New(shard.Config{Partitions: 64, MaxBytes: shard.MinBytes(64), Metrics: prometheus.NewRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		r := NewRouter(RouterConfig{Self: "a", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Local: s, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		for _, tc := range []struct {
			policy  shard.Policy
			cost    int64
			allowed bool
			source  shard.Source
		}{
			{shard.FailOpen, 11, true, shard.Undecided},
			{shard.FailClosed, 1, false, shard.Undecided},
			{shard.FailLocal, 10, true, shard.Local}, // no member is known to share it with
			{shard.FailLocal, 1, false, shard.Local},
		} {
			take := take(ring.Key{}, 10, tc.cost)
			take.OnFailure = tc.policy
			groups := []shard.Group{{Takes: []shard.Take{take}}}
			r.Decide(t.Context(), groups)
			if groups[0].Allowed != tc.allowed || groups[0].Takes[0].Source != tc.source {
				t.Errorf("%+v: %+v", tc, groups[0])
			}
		}
	})
}
