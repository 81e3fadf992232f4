package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
)

// Expiry makes a counter of every key in this process, and watches how the memory comes
// back when they have expired, while checks of a few keys go on. Every field is required, unless
// it says otherwise.
type Expiry struct {
	Keys       uint64
	Limit      algorithms.Limit // valid; of every key
	Goroutines int              // that make counters
	Patience   time.Duration    // to wait after the last has expired
	Within     float64          // of the idle memory, such as 0.2: what is above it counts as not back
	Tell       Tell             // may be nil
}

// ExpiryReport is what an Expiry led to. Memory is what the process has resident.
type ExpiryReport struct {
	Keys        uint64  `json:"keys"`
	Idle        int64   `json:"idle_bytes"` // before the first counter
	Full        int64   `json:"full_bytes"` // with all
	After       int64   `json:"after_bytes"`
	XIdle       float64 `json:"x_idle"` // After as a multiple of Idle
	FillSeconds float64 `json:"fill_seconds"`
	// BackSeconds is how long it took since the last counter had expired until the memory was
	// back, or the patience at an end.
	BackSeconds float64 `json:"back_seconds"`
	Back        bool    `json:"back"`
	Counters    int     `json:"counters"` // that are there at the end
	Checks      *Growth `json:"checks"`   // those that went on
}

const (
	expiryLook = 100 * time.Millisecond
	expiryKeys = 1000 // that checks go on about
)

// Run ends early with ctx.
func (e *Expiry) Run(ctx context.Context) (ExpiryReport, error) {
	s, err := newShard(roomFor(e.Keys), prometheus.NewRegistry())
	if err != nil {
		return ExpiryReport{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { _ = s.Run(ctx) }) // it returns nil
	defer sweeper.Wait()
	defer cancel()
	checks := newWatch() // what it writes to is no counter's memory
	report := ExpiryReport{Keys: e.Keys, Idle: residentBytes()}
	var stop atomic.Bool
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	started := time.Now()
	told := e.Tell.every(func() string { return made(s, e.Keys) })
	fill(s, e.Keys, e.Goroutines, &stop, e.Limit)
	told()
	filled := time.Now()
	report.FillSeconds, report.Full = filled.Sub(started).Seconds(), rss()
	checks.start(s, e.Limit, min(e.Keys, expiryKeys))
	// A window that has begun is over after two at the latest, for each algorithm.
	expired := filled.Add(2 * time.Duration(e.Limit.Window))
	told = e.Tell.every(func() string { return fmt.Sprintf("%d counters, %d MiB", s.Len(), rss()>>20) })
	defer func() { told() }()
	tick := time.NewTicker(expiryLook)
	defer tick.Stop()
	for !report.Back && time.Since(expired) < e.Patience && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		report.After = rss()
		report.Back = time.Now().After(expired) && float64(report.After) <= float64(report.Idle)*(1+e.Within)
	}
	report.BackSeconds = max(0, time.Since(expired).Seconds())
	report.Checks, report.Counters = checks.end(), s.Len()
	report.XIdle = ratio(float64(report.After), float64(report.Idle))
	return report, nil
}
