package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/weirlimit/weir/test/bench/measure"
)

// part is what is measured together.
type part struct {
	name  string
	steps []step
}

// step is one command: weir with arguments, or go test with benchmarks.
type step struct {
	name string // of what weir reports; benchmarks have names of their own
	args []string
	dir  string // of go test
	cpus []int  // of go test; nil for weir
	// rounds is how often it is run. go test's own -count would run each benchmark so often
	// before the next, and ratios would not be of neighbours.
	rounds int
}

// String is what one would type.
func (s step) String() string {
	if s.cpus == nil {
		return "weir " + strings.Join(s.args, " ")
	}
	text := "go test -run '^$' -cpu " + strings.ReplaceAll(strings.Trim(fmt.Sprint(s.cpus), "[]"), " ", ",") + " " + quoted(s.args)
	if s.dir != "." {
		text = "cd " + s.dir + " && " + text
	}
	return text
}

func quoted(args []string) string {
	var all []string
	for _, a := range args {
		if strings.ContainsAny(a, "^$()|") {
			a = "'" + a + "'"
		}
		all = append(all, a)
	}
	return strings.Join(all, " ")
}

// weir is a step that runs weir.
func weir(name string, args string) step {
	return step{name: name, args: strings.Fields(args), rounds: 1}
}

// gotest is a step that runs benchmarks of the main module so often.
func gotest(pkg, bench, benchtime string, rounds int) step {
	return step{dir: ".", cpus: []int{2}, rounds: rounds, args: []string{pkg, "-bench", bench, "-benchtime", benchtime}}
}

// keyCounts are those of the plot and the table of memory.
var keyCounts = []int{10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}

// engineName is the name of what the engine reports of so many keys in batches.
func engineName(keys, batch int) string { return fmt.Sprintf("engine/keys=%d/batch=%d", keys, batch) }

// tooMany is how many keys take so long to fill in that they are only asked about once.
const tooMany = 100_000_000

// engines asks the engine about so many keys, one at a time and in batches of 100.
func engines(counts []int) (steps []step) {
	for _, keys := range counts {
		for _, batch := range []int{1, 100} {
			if keys < tooMany || batch == 1 {
				steps = append(steps, weir(engineName(keys, batch), fmt.Sprintf("bench engine --algorithm gcra --goroutines 1 --keys %d --batch %d --duration 2s", keys, batch)))
			}
		}
	}
	return steps
}

// parts are measured in this order.
var parts = []part{
	{"engine", append(engines(keyCounts),
		weir("denied/batch=1", "bench engine --algorithm gcra --goroutines 1 --keys 1 --limit 1 --batch 1 --duration 2s"),
		weir("denied/batch=100", "bench engine --algorithm gcra --goroutines 1 --keys 1 --limit 1 --batch 100 --duration 2s"),
	)},
	{"memory", []step{
		weir("growth", "bench engine --keys 10000000 --grow --duration 1s"),
		weir("expiry", "bench expiry --keys 10000000"),
		weir("flood", "bench flood --keys 10000000 --budget 64"),
	}},
	{"libraries", []step{
		{dir: "test/bench/peers", cpus: []int{1, 2}, rounds: 1, args: []string{"-bench", ".", "-benchtime", "1s"}},
	}},
	{"map", []step{
		{dir: ".", cpus: []int{1, 2}, rounds: 3, args: []string{"./shard", "-bench", "^BenchmarkCheck$", "-benchtime", "1s"}},
	}},
	{"within", []step{
		gotest("./algorithms", "^BenchmarkStep$", "200ms", 1),
		gotest("./rules", "^BenchmarkMatch$", "200ms", 1),
		{dir: ".", cpus: []int{2}, rounds: 1, args: []string{"./api", "-bench", "^Benchmark(CheckRateLimit|CheckRateLimitBatch|ShouldRateLimit)$", "-benchtime", "500ms", "-benchmem"}},
	}},
	{"wire", []step{gotest("./test/bench", "^BenchmarkCPUPerCheck$", "2s", 3)}},
	{"few", []step{gotest("./test/bench", "^BenchmarkFewCallers$", "2s", 3)}},
	{"hot", []step{gotest("./test/bench", "^BenchmarkHotDenied$", "2s", 3)}},
	{"hop", []step{gotest("./test/bench", "^BenchmarkForwardLatency$", "5s", 1)}},
	{"nodes", []step{gotest("./test/bench", "^BenchmarkNodes$", "2s", 1)}},
	{"client", []step{gotest("./client", ".", "1s", 1)}},
}

func partNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// measure runs the parts' steps, one after the other, and stores what they report.
func (s *store) measure(ctx context.Context, binaries string, chosen []part) error {
	binary, err := measure.Build(ctx, binaries)
	if err != nil {
		return err
	}
	for _, p := range chosen {
		s.forget(p.name)
		for _, st := range p.steps {
			started := time.Now()
			fmt.Printf("=== %s: %v\n", p.name, st)
			for range st.rounds {
				results, err := st.run(ctx, binary, os.Stdout)
				if err != nil {
					return err
				}
				s.keep(p.name, st, results)
			}
			fmt.Printf("--- %.0fs\n", time.Since(started).Seconds())
		}
		if err := s.save(); err != nil {
			return err
		}
	}
	return nil
}

func (s step) run(ctx context.Context, binary string, log io.Writer) (measure.Results, error) {
	if s.cpus == nil {
		return measure.Weir(ctx, binary, s.name, s.args...)
	}
	return measure.GoTest(ctx, log, s.dir, s.cpus, s.args...)
}
