package main

import (
	"fmt"
	"strings"
	"time"
)

// part is what is measured together.
type part struct {
	name     string
	patience time.Duration // after which it has failed
	steps    []step
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
	if s.rounds > 1 {
		text += fmt.Sprintf(" # %d times", s.rounds)
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
func gotest(pkg, bench, benchtime string, rounds int, more ...string) step {
	return step{dir: ".", cpus: []int{2}, rounds: rounds, args: append([]string{pkg, "-bench", bench, "-benchtime", benchtime}, more...)}
}

// keyCounts are those of the plot and the table of memory.
var keyCounts = []int{10_000, 100_000, 1_000_000, 10_000_000, 100_000_000}

// engineName is the name of what the engine reports of so many keys in batches.
func engineName(keys, batch int) string { return fmt.Sprintf("engine/keys=%d/batch=%d", keys, batch) }

// tooMany is how many keys take so long to fill in that they are only asked about once.
const tooMany = 100_000_000

// engines asks the engine about so many keys, one at a time and in batches of 100.
func engines(counts []int, duration string) (steps []step) {
	for _, keys := range counts {
		for _, batch := range []int{1, 100} {
			if keys < tooMany || batch == 1 {
				steps = append(steps, weir(engineName(keys, batch), fmt.Sprintf("bench engine --goroutines 1 --keys %d --batch %d --duration %s", keys, batch, duration)))
			}
		}
	}
	return steps
}

// parts returns those that are measured, in this order: each by itself, so that one can be measured again.
// The short form is once and shortly, and with a tenth of the keys.
func parts(short bool) []part {
	pick := func(full, ifShort string) string {
		if short {
			return ifShort
		}
		return full
	}
	rounds, counts, many := 3, keyCounts, "10000000"
	if short {
		rounds, counts, many = 1, keyCounts[:3], "1000000"
	}
	second, two := pick("1s", "100ms"), pick("2s", "300ms")
	denied := "bench engine --goroutines 1 --keys 1 --limit 1 --duration " + two + " --batch "
	servers := func(name string, benchtime string, rounds int, more ...string) step {
		return gotest("./test/bench", "^"+name+"$", benchtime, rounds, more...)
	}
	return []part{
		{"engine", 10 * time.Minute, append(engines(counts, two), weir("denied/batch=1", denied+"1"), weir("denied/batch=100", denied+"100"))},
		{"memory", 5 * time.Minute, []step{
			weir("growth", "bench engine --keys "+many+" --grow --duration "+second),
			weir("expiry", "bench expiry --keys "+many),
			weir("cardinality", "bench cardinality --keys 10000000 --budget 64"),
		}},
		{"expiry", 5 * time.Minute, []step{servers("BenchmarkExpiry", "1x", 1, "-expiry-keys="+many)}},
		// It has rounds of its own.
		{"turns", 10 * time.Minute, []step{
			{dir: "test/bench/peers", cpus: []int{1, 2}, rounds: 1, args: []string{"-bench", "^BenchmarkBeside$", "-benchtime", "1x"}},
		}},
		{"libraries", 10 * time.Minute, []step{
			{dir: "test/bench/peers", cpus: []int{1, 2}, rounds: 1, args: []string{"-bench", "^BenchmarkLibraries$", "-benchtime", pick("500ms", "100ms")}},
		}},
		{"map", 5 * time.Minute, []step{
			{dir: ".", cpus: []int{1, 2}, rounds: rounds, args: []string{"./shard", "-bench", "^BenchmarkCheck$", "-benchtime", pick("500ms", "100ms")}},
		}},
		{"within", 3 * time.Minute, []step{
			gotest("./algorithms", "^BenchmarkStep$", pick("200ms", "50ms"), 1),
			gotest("./rules", "^BenchmarkMatch$", pick("200ms", "50ms"), 1),
			gotest("./api", "^Benchmark(CheckRateLimit|CheckRateLimitBatch)$", pick("500ms", "50ms"), 1, "-benchmem"),
			gotest("./api/envoy", "^BenchmarkShouldRateLimit$", pick("500ms", "50ms"), 1, "-benchmem"),
		}},
		{"wire", 10 * time.Minute, []step{servers("BenchmarkCPUPerCheck", two, rounds)}},
		{"few", 3 * time.Minute, []step{servers("BenchmarkFewCallers", two, rounds)}},
		{"hot", 3 * time.Minute, []step{servers("BenchmarkHotDenied", two, rounds)}},
		{"hop", 3 * time.Minute, []step{servers("BenchmarkForwardLatency", pick("5x", "1x"), 1)}},
		{"nodes", 8 * time.Minute, []step{servers("BenchmarkNodes", second, 1)}},
		{"client", 5 * time.Minute, []step{
			gotest("./client", ".", second, 1),
			servers("BenchmarkClient", second, 1),
			servers("BenchmarkLeases", pick("3x", "1x"), 1),
		}},
		{"profile", 3 * time.Minute, []step{servers("BenchmarkProfile", "1x", 1)}},
	}
}

func partNames() (names []string) {
	for _, p := range parts(false) {
		names = append(names, p.name)
	}
	return names
}
