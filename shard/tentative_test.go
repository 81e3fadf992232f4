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
	s := newShard(t)
	const bound = 3 * maxTentative
	limit := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: bound, Window: int64(time.Hour)}
	for range bound {
		s.Decide([]Group{{Takes: []Take{{Key: key("a", 0), Limit: limit, Cost: 1, Tentative: true}}}})
	}
	if n := len(*s.tentativeOf(key("a", 0))); n != maxTentative {
		t.Errorf("%d takes are remembered, not %d", n, maxTentative)
	}
}

// TestOnlyScarceTakesAreRemembered: a tentative take that leaves plenty of its limit cannot soon deny others, and is not
// remembered.
func TestOnlyScarceTakesAreRemembered(t *testing.T) {
	s, k := newShard(t), key("a", 0)
	limit := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: int64(time.Hour)}
	take := func(cost int64) (remembered int) {
		g := []Group{{Takes: []Take{{Key: k, Limit: limit, Cost: cost, Tentative: true}}}}
		s.Decide(g)
		if remembered = len(*s.tentativeOf(k)); (remembered > 0) != g[0].Takes[0].IsScarce() {
			t.Errorf("%d are left: %d are remembered, scarce is %v", g[0].Takes[0].Decision.Remaining, remembered, g[0].Takes[0].IsScarce())
		}
		s.Return(g[0].Takes)
		return remembered
	}
	for _, c := range []struct {
		cost int64
		want int
	}{{1, 0}, {15, 0}, {16, 1}, {500, 1}, {1000, 1}} { // 985 is more than 64 times 15, 984 is less than 64 times 16
		if got := take(c.cost); got != c.want {
			t.Errorf("a take of %d of 1000: %d are remembered, want %d", c.cost, got, c.want)
		}
	}
	s.Decide([]Group{{Takes: []Take{{Key: k, Limit: limit, Cost: 500}}}})
	if got := take(1); got != 1 {
		t.Errorf("a take that leaves less than half: %d are remembered, want 1", got)
	}
}
