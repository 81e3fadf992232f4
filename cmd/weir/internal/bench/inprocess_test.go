package bench

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

func smallEngine(t *testing.T, goroutines, batch int) *Engine {
	return &Engine{
		Keys: newTestKeys(t, Sequential, 1000), Goroutines: goroutines, Batch: batch, Duration: 50 * time.Millisecond,
		Limit: algorithms.Limit{Algorithm: algorithms.GCRA, Limit: 3, Window: int64(24 * time.Hour)},
	}
}

// TestEngine: every key has a counter that has lost one token to the filling, so that at
// most two are left for the checks.
func TestEngine(t *testing.T) {
	for _, e := range []*Engine{smallEngine(t, 1, 1), smallEngine(t, 3, 10)} {
		r, err := e.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		calls := int64(stopEvery * e.Batch)
		if r.Counters != 1000 || r.Checks == 0 || r.Checks%calls != 0 || r.Allowed == 0 || r.Allowed > 2000 || r.Denied != r.Checks-r.Allowed {
			t.Errorf("%d goroutines: %+v", e.Goroutines, r)
		}
		if r.Nanoseconds <= 0 || r.Allocations >= 1 || r.Algorithm != "gcra" {
			t.Errorf("%d goroutines: %+v", e.Goroutines, r)
		}
	}
}

// TestEngineStops: what is stopped early still reports.
func TestEngineStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := smallEngine(t, 2, 1)
	e.Duration = time.Hour
	if r, err := e.Run(ctx); err != nil || r.Keys != 1000 || r.Checks > 2*stopEvery {
		t.Errorf("got %+v, %v", r, err)
	}
}
