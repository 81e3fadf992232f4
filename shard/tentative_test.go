package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// TestTentativeTakesSetNoRetryTime has a counter denied because of tentative takes: the time to try again is that at
// which they are settled, and the limit's own after that.
func TestTentativeTakesSetNoRetryTime(t *testing.T) {
	for _, algorithm := range []algorithms.Algorithm{
		algorithms.SlidingWindow, algorithms.FixedWindow, algorithms.SlidingWindowLog, algorithms.SlidingWindowBuckets,
		algorithms.TokenBucket, algorithms.GCRA, algorithms.LeakyBucket,
	} {
		for _, together := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, k := newShard(t), key("a", 0)
				limit := algorithms.Limit{Algorithm: algorithm, Limit: 200, Window: int64(24 * time.Hour)}
				if algorithm.Drains() {
					limit.Burst = 200
				}
				if algorithm == algorithms.SlidingWindowBuckets {
					limit.Buckets = 24
				}
				decide := func(cost int64, tentative bool) (*Take, time.Duration) {
					g := []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: cost, Tentative: tentative}}}}
					if together {
						g[0].Takes = append(g[0].Takes, Take{Key: key("b", 0), Limit: limit, Cost: 0})
					}
					s.Decide(g)
					return &g[0].Takes[0], time.Duration(g[0].Takes[0].Decision.RetryAt - g[0].Takes[0].Decision.At)
				}
				first, _ := decide(190, true)
				time.Sleep(10 * time.Millisecond)
				if d, wait := decide(20, false); d.Decision.Allowed || wait != undoFor-10*time.Millisecond {
					t.Errorf("%v: allowed %v, try again after %v", algorithm, d.Decision.Allowed, wait)
				}
				if d, wait := decide(201, false); d.Decision.Allowed || d.Decision.RetryAt != algorithms.Never {
					t.Errorf("%v: more than the limit: try again after %v", algorithm, wait)
				}
				time.Sleep(undoFor)
				if d, wait := decide(20, false); d.Decision.Allowed || wait < time.Hour {
					t.Errorf("%v: settled: allowed %v, try again after %v", algorithm, d.Decision.Allowed, wait)
				}
				s.Return([]Take{*first})
				second, _ := decide(190, true)
				s.Return([]Take{*second})
				if d, wait := decide(150, false); !d.Decision.Allowed {
					t.Errorf("%v: undone: denied for %v", algorithm, wait)
				}
				if d, wait := decide(100, false); d.Decision.Allowed || wait < time.Hour {
					t.Errorf("%v: others have taken it: allowed %v, try again after %v", algorithm, d.Decision.Allowed, wait)
				}
			})
		}
	}
}

func TestTentativeLogIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		const bound = 2*maxTentative + maxTentative/2 // the last one has the middle of the ring
		take := Take{Key: key("a", 0), Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: bound, Window: int64(24 * time.Hour)}, Cost: 1, Tentative: true}
		for range bound {
			time.Sleep(time.Millisecond)
			s.Decide([]Group{{Takes: []Take{take}}})
		}
		if n := len(s.tentativeOf(take.Key).takes); n != maxTentative {
			t.Errorf("%d takes are remembered, not %d", n, maxTentative)
		}
		g := []Group{{Takes: []Take{take}}}
		s.Decide(g)
		if d := g[0].Takes[0].Decision; d.Allowed || d.RetryAt-d.At != int64(undoFor) {
			t.Errorf("allowed %v, try again after %v, want %v: when the last one is settled", d.Allowed, time.Duration(d.RetryAt-d.At), undoFor)
		}
	})
}

// A tentative take that leaves plenty of its limit denies only a take that costs more than that, which is contended. What others
// have used up since is no such take's fault.
func TestPlentyDeniesOnlyLargeCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, k := newShard(t), key("a", 0)
		limit := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: int64(24 * time.Hour)}
		take := func(cost int64, tentative bool) *Take {
			g := []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: cost, Tentative: tentative}}}}
			s.Decide(g)
			return &g[0].Takes[0]
		}
		first := take(10, true)
		if first.IsScarce() {
			t.Error("990 of 1000 are scarce after a take of 10")
		}
		large := take(995, false)
		if wait := time.Duration(large.Decision.RetryAt - large.Decision.At); large.Decision.Allowed || !large.Contended || wait > undoFor {
			t.Errorf("a take of 995: allowed %v, contended %v, try again after %v", large.Decision.Allowed, large.Contended, wait)
		}
		take(985, false)
		if small := take(10, false); small.Decision.Allowed || small.Contended {
			t.Errorf("a take of 10 of 5: allowed %v, contended %v", small.Decision.Allowed, small.Contended)
		}
		s.Return([]Take{*first})
		if again := take(10, true); !again.Decision.Allowed || !again.IsScarce() {
			t.Errorf("a take of 10 of 15: allowed %v, scarce %v", again.Decision.Allowed, again.IsScarce())
		}
		if last := take(10, false); last.Decision.Allowed || !last.Contended {
			t.Errorf("a take of 10 of 5, after a scarce one: allowed %v, contended %v", last.Decision.Allowed, last.Contended)
		}
	})
}

// TestIsScarce: a take leaves plenty if half of the limit is left, and 64 times its cost.
func TestIsScarce(t *testing.T) {
	for _, c := range []struct {
		left, cost int64
		want       bool
	}{{999, 1, false}, {500, 1, false}, {499, 1, true}, {985, 15, false}, {984, 16, true}, {0, 1000, true}} {
		take := Take{Limit: algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: int64(time.Hour)}, Cost: c.cost}
		take.Decision.Remaining = c.left
		if got := take.IsScarce(); got != c.want {
			t.Errorf("%d of 1000 are left after a take of %d: scarce is %v, want %v", c.left, c.cost, got, c.want)
		}
	}
}
