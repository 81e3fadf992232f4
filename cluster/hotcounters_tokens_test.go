package cluster

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// out returns how many tokens a node has lent that have not come back, and that it does not know to be
// used: weir_lent_tokens_total less the others.
func (n *testNode) out(t *testing.T) (tokens int64) {
	families, err := n.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		v := int64(f.GetMetric()[0].GetCounter().GetValue())
		switch f.GetName() {
		case "weir_lent_tokens_total":
			tokens += v
			found++
		case "weir_returned_tokens_total", "weir_used_tokens_total":
			tokens -= v
			found++
		}
	}
	if found != 3 {
		t.Fatalf("%d of the metrics of leases", found)
	}
	return tokens
}

func TestUnusedTokensComeBack(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
		allowed := c.hammer(500, hot)
		if c.lent(hot.Key) == 0 {
			t.Fatal("nothing was lent")
		}
		time.Sleep(2*idleLease + time.Millisecond)
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
// behind the request arrives; and not for ever for one that does not answer.
func TestUnusedTokensComeBackBehindACheck(t *testing.T) {
	for slow, back := range map[time.Duration]bool{closeGrace / 2: true, 2 * closeGrace: false} {
		inCluster(t, func(t *testing.T, c *testCluster) {
			hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
			allowed := c.hammer(500, hot)
			lent := c.lent(hot.Key)
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
func TestTokenLeaseEndsWithItsWindow(t *testing.T) {
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

// What is left of one lease goes on in the next if both are of one window, and the first is not over.
func TestTokenLeasesAddUpWithinAWindow(t *testing.T) {
	const minute = int64(time.Minute)
	window := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: minute}
	bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: minute}
	for _, tc := range []struct {
		name     string
		limit    algorithms.Limit
		sent, at int64 // of the second; the first is sent at 0, lent at 100 minutes, and valid for 50 s
		now      int64 // when the second comes
		left     int64 // of which 4 of the first
		settled  bool
	}{
		{"the same window", window, 10, 100*minute + 20, 20, 24, false},
		{"the next window", window, 10, 101*minute + 20, 20, 20, true},
		{"of a bucket", bucket, 10, 100*minute + 20, 20, 24, false},
		{"the first is over", bucket, 60e9, 101 * minute, 60e9 + 20, 20, true},
		{"the first is over when the second comes", bucket, 10, 100*minute + 20, 50e9, 20, true},
	} {
		c := &borrowed{}
		first := shard.Take{Limit: tc.limit, Cost: 1, Decision: algorithms.Decision{Allowed: true, At: 100 * minute, Remaining: 990, ResetAt: 101 * minute}}
		c.borrow(&first, shard.TokenLease{Tokens: 10, At: 100 * minute, Until: 100*minute + 50e9}, 0, 10)
		c.spend(&first, 10)
		c.left -= 4
		rest := c.asking(tc.sent)
		if over := rest == (shard.TokenLease{}); over != (tc.sent >= 50e9) || !over && rest != (shard.TokenLease{Tokens: 5, At: 100 * minute}) {
			t.Errorf("%s: rest %+v", tc.name, rest)
		}
		c.left-- // while it asks
		second := first
		second.Decision = algorithms.Decision{Allowed: true, At: tc.at, Remaining: 900, ResetAt: tc.at - tc.at%minute + minute}
		old := c.borrow(&second, shard.TokenLease{Tokens: 20, At: tc.at, Until: tc.at + 50e9}, tc.sent, tc.now)
		if c.left != tc.left || c.leaseEnds != tc.sent+50e9 || (len(old) == 1) != tc.settled || tc.settled && (old[0].Cost != 4 || old[0].Decision.At != 100*minute) {
			t.Errorf("%s: %d left until %d, and %+v to settle; want %d", tc.name, c.left, c.leaseEnds, old, tc.left)
		}
		if c.spend(&second, tc.now); second.Decision.Remaining != 899-int64(1-len(old)) {
			t.Errorf("%s: %d remaining", tc.name, second.Decision.Remaining)
		}
	}
}

// A client's lease comes from the owner, not from what this node has borrowed itself.
func TestClientLeaseComesFromTheOwner(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 100_000, 1)
		allowed := c.hammer(100, hot)
		for through, n := range c.nodes {
			for _, other := range [][]shard.Group{nil, {{Takes: []shard.Take{take(c.ownedBy(c.nodes[2], 3), 10, 1)}}}} {
				groups := append([]shard.Group{{Takes: []shard.Take{hot}, Lend: 50, Tokens: 1}}, other...)
				n.router.Decide(t.Context(), groups)
				if g := groups[0]; !g.Allowed || g.TokenLease.Tokens != 50 || g.TokenLease.Until <= g.TokenLease.At {
					t.Errorf("through node %d: %+v", through, g)
				}
				allowed += 51
			}
		}
		clients := int64(3 * 2 * 50)
		if used, out, lent := c.used(hot), c.nodes[1].out(t)-clients, c.lent(hot.Key); used+out != allowed+lent {
			t.Errorf("%d used, %d out, %d allowed or lent to clients, %d lent to nodes", used, out, allowed, lent)
		}
	})
}

// What is lent is used on when its counter has moved, but what is left of it is given back only to
// the node that lent it.
func TestTokenLeasesMoveWithTheirCounter(t *testing.T) {
	for name, more := range map[string]int{"left": 1, "used up": 500} {
		inCluster(t, func(t *testing.T, c *testCluster) {
			asker, from, to := c.nodes[0], c.nodes[1], c.nodes[2]
			hot := take(c.ownedBy(from, 0), 100_000, 1)
			var allowed int64
			ask := func(times int) {
				for ; times > 0; times -= 2 {
					allowed += int64(asker.askAtOnce(t.Context(), min(times, 2), hot))
					time.Sleep(2 * hammerEvery)
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
			time.Sleep(2*idleLease + time.Millisecond)
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

func TestTokenLeaseServesAnyCostThatFits(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 1_000_000, 3)
		if got := c.hammer(1000, hot); got != 3000 {
			t.Errorf("%d of 3000 allowed", got)
		}
		time.Sleep(3 * idleLease)
		if used := c.used(hot); used != 9000 {
			t.Errorf("%d used, want 9000", used)
		}
		if c.fromLeases() < 1500 {
			t.Errorf("%v checks were decided from leases", c.fromLeases())
		}
	})
}

// What an answer from a lease says is what the owner's would.
func TestLentAnswers(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		hot := take(c.ownedBy(c.nodes[1], 0), 1_000_000, 1)
		last := int64(1_000_000)
		for lent := 0; lent < 500; {
			groups := []shard.Group{{Takes: []shard.Take{hot}}, {Takes: []shard.Take{hot}}}
			c.nodes[0].router.Decide(t.Context(), groups)
			for _, g := range groups {
				d := g.Takes[0].Decision
				if g.Takes[0].Source == shard.Lent {
					lent++
					if d.At != time.Now().UnixNano() || d.RetryAt != d.At || d.Delay != 0 {
						t.Fatalf("%+v", d)
					}
				}
				if g.TokenLease != (shard.TokenLease{}) || g.Lend != 0 || g.ForNode || g.Unused != (shard.TokenLease{}) {
					t.Fatalf("the caller is told of a lease: %+v", g)
				}
				if d.Remaining > last-1 || d.Remaining < last-2 { // they come at once
					t.Fatalf("%+v after %d remained", d, last)
				}
			}
			last -= 2
			time.Sleep(2 * hammerEvery)
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
