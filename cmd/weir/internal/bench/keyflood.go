package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Cardinality uses half of the limit of some keys, and then asks about fresh keys, each once, in
// this process. Every field is required, unless it says otherwise.
type Cardinality struct {
	Keys       uint64 // fresh ones
	Victims    uint64 // keys that are at half of their limit before
	Budget     int64  // bytes of all counters
	Goroutines int
	Tell       Tell // may be nil
}

// CardinalityReport is what a Cardinality led to.
type CardinalityReport struct {
	Keys     uint64  `json:"keys"`
	Victims  uint64  `json:"victims"`
	Budget   int64   `json:"budget_bytes"`
	Peak     int64   `json:"peak_bytes"` // the most that the process had resident above what it had before
	XBudget  float64 `json:"x_budget"`   // Peak as a multiple of Budget
	Counters int     `json:"counters"`   // at the end
	Evicted  int64   `json:"evicted"`
	// Forgotten is how many of the victims do not have exactly the other half of their limit
	// left at the end.
	Forgotten uint64  `json:"forgotten"`
	Seconds   float64 `json:"seconds"`
}

const (
	cardinalityLook  = 20 * time.Millisecond
	cardinalityLimit = 1000
	// victimBase is above the numbers of all fresh keys.
	victimBase = uint64(1) << 63
)

// Run ends early with ctx.
func (f *Cardinality) Run(ctx context.Context) (CardinalityReport, error) {
	registry := prometheus.NewRegistry()
	before := residentBytes()
	s, err := newShard(f.Budget, registry)
	if err != nil {
		return CardinalityReport{}, err
	}
	// A window so long that nothing of it passes: what was used stays used.
	limit := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: cardinalityLimit, Window: int64(algorithms.MaxWindow)}
	for i := range f.Victims {
		askVictim(s, limit, i, cardinalityLimit/2)
	}
	var stop atomic.Bool
	defer context.AfterFunc(ctx, func() { stop.Store(true) })()
	started := time.Now()
	peak := watchPeak()
	told := f.Tell.every(func() string { return fmt.Sprintf("%d counters, %d MiB", s.Len(), rss()>>20) })
	fill(s, f.Keys, f.Goroutines, &stop, limit)
	told()
	report := CardinalityReport{Keys: f.Keys, Victims: f.Victims, Budget: f.Budget, Seconds: time.Since(started).Seconds()}
	report.Peak = max(0, peak()-before)
	report.XBudget = ratio(float64(report.Peak), float64(f.Budget))
	report.Counters = s.Len()
	if report.Evicted, err = evicted(registry); err != nil {
		return CardinalityReport{}, err
	}
	for i := range f.Victims {
		if askVictim(s, limit, i, 0).Remaining != cardinalityLimit-cardinalityLimit/2 {
			report.Forgotten++
		}
	}
	return report, nil
}

// askVictim takes so many tokens of a victim.
func askVictim(s *shard.Shard, limit algorithms.Limit, i uint64, cost int64) algorithms.Decision {
	key := ring.NewHasher([ring.SecretSize]byte{1}).Key(binary.LittleEndian.AppendUint64(nil, victimBase+i))
	groups := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: limit, Cost: cost}}}}
	s.Decide(groups)
	return groups[0].Takes[0].Decision
}

// evicted is how many live counters the shard says it has dropped.
func evicted(g prometheus.Gatherer) (int64, error) {
	families, err := g.Gather()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, f := range families {
		if f.GetName() == "weir_counters_evicted_total" {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return int64(sum), nil
}
