// Command regression fails if a check has become dearer in what does not depend on the machine:
// allocations, bytes per key, and its time as a multiple of the plainest limiter that one
// could write, in the same run.
//
//	go run ./test/bench/regression
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/weirlimit/weir/test/bench/measure"
)

// patience is how long the command may take, after which it fails.
const patience = 10 * time.Minute

// suites are the benchmarks that are run, so many rounds of each. What is compared must be
// of one round, as others may use the machine more in the next.
var suites = []struct {
	rounds int
	args   []string
}{
	{3, []string{"./shard", "-bench", "^BenchmarkCheck$", "-benchtime", "500000x", "-benchmem"}},
	{1, []string{"./rules", "-bench", "^BenchmarkMatch$/^exact-10000$", "-benchtime", "5000x", "-benchmem"}},
	{1, []string{"./api", "./api/envoy", "-bench", "^Benchmark(CheckRateLimit|CheckRateLimitBatch|ShouldRateLimit)$", "-benchtime", "5000x", "-benchmem"}},
	{5, []string{"./api", "-bench", "^BenchmarkTracing$/^(process|gRPC)$/^(off|1%|all)$", "-benchtime", "5000x", "-benchmem"}},
}

// memoryKeys is how many keys weir bench engine asks about, and memory the name of what it
// says then.
const (
	memoryKeys = "1000000"
	memory     = "weir bench engine --keys " + memoryKeys
)

func main() {
	ok, err := compare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "regression:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

func compare() (ok bool, err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	results, err := run(ctx)
	if err != nil {
		return false, err
	}
	return check(os.Stdout, results), nil
}

// run measures everything, one thing after the other.
func run(ctx context.Context) (measure.Results, error) {
	dir, err := os.MkdirTemp("", "weir-regression-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	weir, err := measure.Build(ctx, dir)
	if err != nil {
		return nil, err
	}
	results, err := measure.Weir(ctx, weir, memory, "bench", "engine", "--keys", memoryKeys, "--duration", "1s")
	if err != nil {
		return nil, err
	}
	for _, s := range suites {
		for range s.rounds {
			more, err := measure.GoTest(ctx, io.Discard, ".", []int{1}, s.args...)
			if err != nil {
				return nil, err
			}
			results.Merge(more)
		}
	}
	return results, nil
}
