package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Engine asks the counters of a node in this process: the hash, the clock, the locks,
// the tables and the steps, without requests, rules and network. Every field is required.
type Engine struct {
	Keys       *Keys
	Limit      algorithms.Limit // valid; of every key
	Goroutines int
	Batch      int // checks that read the clock once
	Duration   time.Duration
	// Grow measures single checks while the counters are made, at the cost of one goroutine
	// that makes none.
	Grow bool
	Tell Tell // may be nil
}

// EngineReport is what an Engine led to.
type EngineReport struct {
	Algorithm    string `json:"algorithm"`
	Limit        int64  `json:"limit"`
	Goroutines   int    `json:"goroutines"`
	Batch        int    `json:"batch"`
	Keys         int64  `json:"keys"`
	Distribution string `json:"distribution"`

	Counters int64   `json:"counters"` // that are there at the end: one per key, unless memory is short
	Seconds  float64 `json:"seconds"`
	Checks   int64   `json:"checks"`
	Allowed  int64   `json:"allowed"`
	Denied   int64   `json:"denied"`

	ChecksPerSecond float64 `json:"checks_per_second"` // of all goroutines
	Nanoseconds     float64 `json:"ns_per_check"`      // of the clock, in one goroutine
	CPU             float64 `json:"cpu_ns_per_check"`  // 0 where it cannot be measured
	Allocations     float64 `json:"allocs_per_check"`
	Bytes           float64 `json:"rss_bytes_per_key"` // 0 where it cannot be measured

	Growth *Growth `json:"growth,omitempty"`
}

// stopEvery is how many calls a goroutine makes before it looks whether it should stop.
const stopEvery = 64

// Run makes a counter for every key, and then checks until the duration is over. It ends
// early with ctx.
func (e *Engine) Run(ctx context.Context) (EngineReport, error) {
	before := residentBytes()
	s, err := newShard(roomFor(e.Keys.n), prometheus.NewRegistry())
	if err != nil {
		return EngineReport{}, err
	}
	// As in a node, which gives back the memory of tables that have become too small.
	sweeping, stop := context.WithCancel(ctx)
	var sweeper sync.WaitGroup
	sweeper.Go(func() { _ = s.Run(sweeping) }) // it returns nil
	defer sweeper.Wait()
	defer stop()
	r := &engineRun{Engine: e, shard: s}
	defer context.AfterFunc(ctx, func() { r.stop.Store(true) })()
	told := e.Tell.every(func() string { return made(s, e.Keys.n) })
	growth := r.fill()
	told()
	bytes := settled(ctx) - before

	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	cpu, started := ownCPU(), time.Now()
	timer := time.AfterFunc(e.Duration, func() { r.stop.Store(true) })
	defer timer.Stop()
	told = e.Tell.every(r.speed())
	parallel(e.Goroutines, r.check)
	told()
	elapsed := time.Since(started)
	cpu = ownCPU() - cpu
	runtime.ReadMemStats(&end)

	checks := float64(r.checks.Load())
	return EngineReport{
		Algorithm: e.Limit.Algorithm.String(), Limit: e.Limit.Limit, Goroutines: e.Goroutines, Batch: e.Batch,
		Keys: int64(e.Keys.n), Distribution: e.Keys.distribution,
		Counters: int64(s.Len()), Seconds: elapsed.Seconds(),
		Checks: r.checks.Load(), Allowed: r.allowed.Load(), Denied: r.checks.Load() - r.allowed.Load(),
		ChecksPerSecond: ratio(checks, elapsed.Seconds()),
		Nanoseconds:     ratio(float64(elapsed)*float64(e.Goroutines), checks),
		CPU:             ratio(float64(cpu), checks),
		Allocations:     ratio(float64(end.Mallocs-start.Mallocs), checks),
		Bytes:           ratio(float64(max(0, bytes)), float64(s.Len())),
		Growth:          growth,
	}, nil
}

// engineRun is an Engine that runs.
type engineRun struct {
	*Engine
	shard           *shard.Shard
	stop            atomic.Bool
	checks, allowed atomic.Int64
}

// parallel runs f in so many goroutines, with their numbers.
func parallel(goroutines int, f func(goroutine int)) {
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// fill takes one token of every key.
func (r *engineRun) fill() *Growth {
	if !r.Grow {
		fill(r.shard, r.Keys.n, runtime.GOMAXPROCS(0), &r.stop, r.Limit)
		return nil
	}
	watch := newWatch()
	watch.start(r.shard, r.Limit, r.Keys.n)
	fill(r.shard, r.Keys.n, max(1, r.Goroutines-1), &r.stop, r.Limit)
	return watch.end()
}

// fillBatch is how many keys are filled in at once.
const fillBatch = 100

// fill takes one token of each of n keys, from many goroutines, until it is told to stop.
func fill(s *shard.Shard, n uint64, goroutines int, stop *atomic.Bool, limit algorithms.Limit) {
	parallel(goroutines, func(goroutine int) {
		part := func(i int) uint64 { return n * uint64(i) / uint64(goroutines) }
		key, end := part(goroutine), part(goroutine+1)
		next := func() uint64 { key++; return key - 1 }
		for b := newGroupBatch(s, limit, fillBatch); key < end && !stop.Load(); {
			b.groups = b.groups[:min(fillBatch, end-key)]
			b.decide(next)
		}
	})
}

// check asks until it should stop.
func (r *engineRun) check(goroutine int) {
	draw := r.Keys.Draw(goroutine, r.Goroutines)
	b := newGroupBatch(r.shard, r.Limit, r.Batch)
	for !r.stop.Load() {
		var allowed int64
		for range stopEvery {
			allowed += b.decide(draw)
		}
		r.checks.Add(stopEvery * int64(r.Batch))
		r.allowed.Add(allowed)
	}
}

// speed returns what says how many checks there were per second since it was asked last.
func (r *engineRun) speed() func() string {
	last, then := int64(0), time.Now()
	return func() string {
		checks, now := r.checks.Load(), time.Now()
		defer func() { last, then = checks, now }()
		return fmt.Sprintf("%.0f checks/s", float64(checks-last)/now.Sub(then).Seconds())
	}
}

// made says how many counters there are of so many.
func made(s *shard.Shard, n uint64) string { return fmt.Sprintf("%d of %d counters made", s.Len(), n) }

// groupBatch is the groups that one goroutine has decided at once. Names of keys have the length of usual ones.
type groupBatch struct {
	shard  *shard.Shard
	hasher ring.Hasher
	name   [30]byte
	groups []shard.Group
}

func newGroupBatch(s *shard.Shard, limit algorithms.Limit, size int) *groupBatch {
	b := &groupBatch{shard: s, hasher: ring.NewHasher([ring.SecretSize]byte{1}), groups: make([]shard.Group, size)}
	for i := range b.groups {
		b.groups[i].Takes = []shard.Take{{Limit: limit, Cost: 1}}
	}
	return b
}

// decide checks as many keys as there are groups and returns how many were allowed.
func (b *groupBatch) decide(draw func() uint64) (allowed int64) {
	for i := range b.groups {
		binary.LittleEndian.PutUint64(b.name[:], draw())
		b.groups[i].Takes[0].Key = b.hasher.Key(b.name[:])
	}
	b.shard.Decide(b.groups)
	for i := range b.groups {
		if b.groups[i].Allowed {
			allowed++
		}
	}
	return allowed
}

// newShard returns the counters of a node that may take so many bytes.
func newShard(budget int64, metrics prometheus.Registerer) (*shard.Shard, error) {
	return shard.New(shard.Config{
		Partitions: uint32(ring.DefaultParams.Partitions),
		MaxBytes:   int(budget),
		Metrics:    metrics,
		Relieve:    debug.FreeOSMemory, // as in a node
	})
}

// roomFor is a budget that n counters do not fill, however their tables grow.
func roomFor(n uint64) int64 { return 64<<20 + 64*int64(n) }
