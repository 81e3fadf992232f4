package bench

import (
	"context"
	"encoding/binary"
	"os"
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
}

// stopEvery is how many calls a goroutine makes before it looks whether it should stop.
const stopEvery = 64

// Run makes a counter for every key, and then checks until the duration is over. It ends
// early with ctx.
func (e *Engine) Run(ctx context.Context) (EngineReport, error) {
	before := residentBytes()
	s, err := shard.New(shard.Config{
		Partitions: uint32(ring.DefaultParams.Partitions),
		MaxBytes:   64*int(e.Keys.n) + shard.MinBytes(uint32(ring.DefaultParams.Partitions)),
		Metrics:    prometheus.NewRegistry(),
	})
	if err != nil {
		return EngineReport{}, err
	}
	r := &engineRun{Engine: e, shard: s}
	defer context.AfterFunc(ctx, func() { r.stop.Store(true) })()
	r.parallel(r.fill)
	bytes := residentBytes() - before

	var start, end runtime.MemStats
	runtime.ReadMemStats(&start)
	cpu, started := ownCPU(), time.Now()
	timer := time.AfterFunc(e.Duration, func() { r.stop.Store(true) })
	defer timer.Stop()
	r.parallel(r.check)
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
	}, nil
}

// engineRun is an Engine that runs.
type engineRun struct {
	*Engine
	shard           *shard.Shard
	stop            atomic.Bool
	checks, allowed atomic.Int64
}

// parallel runs f in every goroutine, with its number.
func (r *engineRun) parallel(f func(goroutine int)) {
	var all sync.WaitGroup
	for i := range r.Goroutines {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// fill takes one token of every key of this goroutine's part.
func (r *engineRun) fill(goroutine int) {
	n, all := uint64(goroutine), uint64(r.Goroutines)
	a := r.newAsker(1)
	for key := r.Keys.n * n / all; key < r.Keys.n*(n+1)/all && !r.stop.Load(); key++ {
		a.ask(func() uint64 { return key })
	}
}

// check asks until it should stop.
func (r *engineRun) check(goroutine int) {
	draw := r.Keys.Draw(goroutine, r.Goroutines)
	a := r.newAsker(r.Batch)
	var checks, allowed int64
	for !r.stop.Load() {
		for range stopEvery {
			allowed += a.ask(draw)
		}
		checks += stopEvery * int64(r.Batch)
	}
	r.checks.Add(checks)
	r.allowed.Add(allowed)
}

// asker is what one goroutine needs to ask. Names have the length of usual ones.
type asker struct {
	shard  *shard.Shard
	hasher ring.Hasher
	name   [30]byte
	groups []shard.Group
}

func (r *engineRun) newAsker(batch int) *asker {
	a := &asker{shard: r.shard, hasher: ring.NewHasher([ring.SecretSize]byte{1}), groups: make([]shard.Group, batch)}
	for i := range a.groups {
		a.groups[i].Takes = []shard.Take{{Limit: r.Limit, Cost: 1}}
	}
	return a
}

// ask checks as many keys as there are groups and returns how many were allowed.
func (a *asker) ask(draw func() uint64) (allowed int64) {
	for i := range a.groups {
		binary.LittleEndian.PutUint64(a.name[:], draw())
		a.groups[i].Takes[0].Key = a.hasher.Key(a.name[:])
	}
	a.shard.Decide(a.groups)
	for i := range a.groups {
		if a.groups[i].Allowed {
			allowed++
		}
	}
	return allowed
}

// residentBytes is what this process has in memory without garbage, or 0 where that
// is not known.
func residentBytes() int64 {
	debug.FreeOSMemory()
	_, rss, err := readProcess(os.Getpid())
	if err != nil {
		return 0
	}
	return rss
}
