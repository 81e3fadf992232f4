package node

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"
)

// evictionsEvery is how often evictions are logged, and for how long at least health tells them.
const evictionsEvery = time.Minute

// evictions tells of live counters that are dropped for lack of memory.
type evictions struct {
	count  func() uint64 // since the start
	log    *slog.Logger
	marked atomic.Uint64 // what count was when the present minute began
	before atomic.Uint64 // how many there were in the minute before
}

// Run logs the evictions of each minute, in one line, until ctx ends.
func (e *evictions) Run(ctx context.Context) {
	tick := time.NewTicker(evictionsEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := e.count()
		evicted := now - e.marked.Load()
		e.before.Store(evicted)
		e.marked.Store(now)
		if evicted > 0 {
			e.log.Warn("counters in use were dropped for lack of memory, so callers may get more than their limit: raise counter-memory",
				"counters", evicted, "within", evictionsEvery)
		}
	}
}

// problem is what health says of evictions, empty if there were none of late.
func (e *evictions) problem() string {
	n := e.before.Load() + e.count() - e.marked.Load()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d counters in use were dropped of late for lack of memory, so callers may get more than their limit: raise counter-memory", n)
}
