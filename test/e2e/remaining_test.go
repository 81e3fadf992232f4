package e2e

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const rulesOfFlood = `domain: default
rules:
  - id: per-user
    per: [user]
    limits: [{limit: 1000000, window: 365d}]
`

// TestRemainingAmongMany has callers of one counter on three nodes: what remains does not rise for one that stays with a
// node, as long as owners decide. For one that asks all in turn it rises by no more than nodes hold, and what others take in the time for which a node
// need not ask the owner. Nodes wait for each other for as long as it takes: checks that are given up are given back.
func TestRemainingAmongMany(t *testing.T) {
	testform.NotInBrief(t)
	const (
		limit = 1_000_000
		hold  = limit / 200
		lasts = 2 * time.Second
	)
	_, nodes := startThree(t, rulesOfFlood, "--peer-timeout", "5s")
	process.AwaitSettled(t, process.Patience, nodes...)
	began := time.Now()
	var granted atomic.Int64
	var taken [lasts/time.Millisecond + 1000]atomic.Int64 // granted by the end of each millisecond
	var lent, slowest atomic.Int64
	ask := func(node int) (remaining int64, byOwner bool) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		asked := time.Now()
		resp, err := nodes[node].Client.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "hot", TokensRequested: 1})
		if err != nil || !resp.GetAllowed() {
			t.Errorf("%v, %v", resp, err)
			return 0, false
		}
		if resp.GetSource() == weirv1.Source_SOURCE_LENT {
			lent.Add(1)
		}
		took, most := int64(time.Since(asked)), slowest.Load()
		for took > most && !slowest.CompareAndSwap(most, took) {
			most = slowest.Load()
		}
		n := granted.Add(1)
		if ms := time.Since(began) / time.Millisecond; int(ms) < len(taken) {
			taken[ms].Store(n)
		}
		return int64(resp.GetRemainingTokens()), resp.GetSource() != weirv1.Source_SOURCE_PROVISIONAL
	}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			for time.Since(began) < lasts {
				ask([]int{0, 1, 1, 1, 2, 2}[i%6])
			}
		})
	}
	for node := range nodes {
		all.Go(func() {
			for last := int64(limit); time.Since(began) < lasts; {
				told, byOwner := ask(node)
				if !byOwner {
					continue
				}
				if told > last {
					t.Errorf("node %d: %d remaining after %d", node, told, last)
				}
				last = told
			}
		})
	}
	most := int64(0)
	all.Go(func() {
		last := int64(limit)
		for i := 0; time.Since(began) < lasts; i++ {
			told, byOwner := ask(i % 3)
			if !byOwner {
				continue
			}
			if rise := told - last; rise > 0 {
				most = max(most, rise)
				now := time.Since(began) / time.Millisecond
				before := int64(0)
				lag := 20*time.Millisecond + 2*time.Duration(slowest.Load())
				for ms := max(0, now-lag/time.Millisecond); ms >= 0 && before == 0; ms-- {
					before = taken[ms].Load()
				}
				if others := granted.Load() - before; rise > hold+others {
					t.Errorf("%d remaining after %d, although others have taken %d in %v", told, last, others, lag)
				}
			}
			last = told
		}
	})
	all.Wait()
	t.Logf("%d granted, %d from lent tokens; what remains rose by %d at most, %.2f %% of the limit", granted.Load(), lent.Load(), most, float64(most)*100/limit)
	if lent.Load() == 0 || most > limit/100 {
		t.Errorf("what remains rises by %d of %d", most, limit)
	}
}
