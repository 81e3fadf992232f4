package bench

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// Growth says how long single checks took while others made counters.
type Growth struct {
	Seconds float64     `json:"seconds"`
	Checks  int64       `json:"checks"`
	Latency Percentiles `json:"latency_us"` // of a check, the two readings of the clock included
	// Idle is the same of doing nothing for as long as a check took, in turns with the checks:
	// what of the latency is the machine's, which lets others run.
	Idle Percentiles `json:"idle_us"`
	// CPU is the processor time of the checks, where that is known: what others of the machine
	// take is not in it, and neither is what a check waits for a lock. That is held for the
	// processor time of another operation of this kind at most.
	CPU *Percentiles `json:"cpu_us,omitempty"`
}

// watch checks keys one after the other, in a goroutine of its own.
type watch struct {
	stop    atomic.Bool
	done    sync.WaitGroup
	started time.Time
	check   *histogram
	idle    *histogram
	cpu     *histogram
}

func newWatch() *watch {
	return &watch{check: newHistogram(), idle: newHistogram(), cpu: newHistogram()}
}

// start checks any of n keys until the end.
func (w *watch) start(s *shard.Shard, limit algorithms.Limit, n uint64) {
	w.started = time.Now()
	w.done.Go(func() {
		runtime.LockOSThread() // whose processor time is measured
		defer runtime.UnlockOSThread()
		b, r := newGroupBatch(s, limit, 1), rand.New(rand.NewPCG(4, 5))
		for !w.stop.Load() {
			key := r.Uint64N(n)
			before, _ := threadCPU()
			begin := time.Now()
			b.decide(func() uint64 { return key })
			end := time.Now()
			after, known := threadCPU()
			w.check.record(end.Sub(begin))
			if known {
				w.cpu.record(after - before)
			}
			// One stall must not be followed by an idle time as long as itself.
			w.idle.record(idle(time.Now(), min(end.Sub(begin), time.Microsecond)))
		}
	})
}

// idle does nothing for so long since an instant, and returns how long that took.
func idle(since time.Time, duration time.Duration) time.Duration {
	for {
		if passed := time.Since(since); passed >= duration {
			return passed
		}
	}
}

// end stops the checks, and returns what they were like.
func (w *watch) end() *Growth {
	w.stop.Store(true)
	w.done.Wait()
	g := &Growth{
		Seconds: time.Since(w.started).Seconds(), Checks: w.check.hdr.TotalCount(),
		Latency: w.check.percentiles(), Idle: w.idle.percentiles(),
	}
	if w.cpu.hdr.TotalCount() > 0 {
		cpu := w.cpu.percentiles()
		g.CPU = &cpu
	}
	return g
}
