package peers

import (
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	turns    = 15     // of each library
	perTurn  = 20_000 // checks of each goroutine in a turn
	standing = "weir" // what the others are compared with
)

// BenchmarkBeside has all libraries take turns, so that other load of the machine is the same for all of
// them, with uniform keys: for each the median of the processor time of a check over all turns, and of its
// multiple of Weir's in the same turn. Other processes do not count in that time, nor does waiting, so
// "wall-ns" is reported too. Garbage is not collected meanwhile, which would be in one library's turn the
// garbage of all.
func BenchmarkBeside(b *testing.B) {
	singles := slices.DeleteFunc(slices.Clone(libraries), func(l library) bool { return l.batch > 1 })
	var open []func() caller
	for _, l := range singles {
		newCaller := l.open(b)
		fill(b, newCaller())
		open = append(open, newCaller)
	}
	names := patterns[0].asked()
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	cpu, wall := make(map[string][]float64), make(map[string][]float64)
	for range turns {
		for i, l := range singles {
			c, w := turn(b, open[i], names)
			cpu[l.name], wall[l.name] = append(cpu[l.name], c), append(wall[l.name], w)
		}
	}
	for _, l := range singles {
		var ratios []float64
		for i := range turns {
			ratios = append(ratios, cpu[l.name][i]/cpu[standing][i])
		}
		b.ReportMetric(median(ratios), "x-"+l.name)
		b.ReportMetric(median(cpu[l.name]), l.name+"-cpu-ns")
		b.ReportMetric(median(wall[l.name]), l.name+"-wall-ns")
	}
	b.ReportMetric(0, "ns/op")
	runtime.KeepAlive(open)
}

// turn checks from as many goroutines as there are processors, and returns the processor time
// of a check, and how many nanoseconds passed per check of all of them.
func turn(b *testing.B, newCaller func() caller, names []string) (cpu, wall float64) {
	goroutines := runtime.GOMAXPROCS(0)
	before, started := used(b), time.Now()
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			call, first := newCaller(), rand.IntN(len(names))
			for i := range perTurn {
				if err := call(names[(first+i)%len(names):][:1]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	passed, checks := time.Since(started), float64(goroutines*perTurn)
	return float64(used(b)-before) / checks, float64(passed) / checks
}

// used is the processor time of this process.
func used(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func median(values []float64) float64 { return slices.Sorted(slices.Values(values))[len(values)/2] }
