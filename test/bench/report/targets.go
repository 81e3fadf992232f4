package main

import (
	"fmt"
	"math"
	"strings"

	"github.com/weirlimit/weir/test/bench/measure"
)

// row is one line of a table of targets.
type row struct {
	what, target string
	part         string // that measures it
	// value is what was measured, false if it was not.
	value  func(measure.Results) (float64, bool)
	format string                       // of the value
	met    func(value float64) bool     // the target
	note   func(measure.Results) string // more about the value; may be nil
}

func median(name, unit string) func(measure.Results) (float64, bool) {
	return func(r measure.Results) (float64, bool) { return r.Median(name, unit) }
}

func atMost(most float64) func(float64) bool { return func(v float64) bool { return v <= most } }

func below(bound float64) func(float64) bool { return func(v float64) bool { return v < bound } }

func atLeast(least float64) func(float64) bool { return func(v float64) bool { return v >= least } }

// noted says more, with the medians of values of one name.
func noted(format, name string, units ...string) func(measure.Results) string {
	return func(r measure.Results) string {
		var values []any
		for _, unit := range units {
			v, _ := r.Median(name, unit)
			values = append(values, v)
		}
		return fmt.Sprintf(format, values...)
	}
}

// byClock notes how long a check of the engine took by the wall clock.
func byClock(name string) func(measure.Results) string {
	return noted("%.0f ns by the wall clock", name, "ns_per_check")
}

// otherLibraries are those that test/bench/peers measures in addition to Weir.
var otherLibraries = []string{"x-time-rate", "go-limiter", "throttled", "ulule"}

func library(name, pattern string, cpus int) string {
	return fmt.Sprintf("BenchmarkLibraries/%s/%s@%d", name, pattern, cpus)
}

// turns is the name of the benchmark in which the libraries take turns, with a number of goroutines.
func turns(goroutines int) string { return fmt.Sprintf("BenchmarkBeside@%d", goroutines) }

// fasterThanAll is how many times the processor time of a check of uniform keys the fastest
// other library needs.
func fasterThanAll(r measure.Results) (float64, bool) {
	least, found := math.Inf(1), false
	for _, name := range otherLibraries {
		if ratio, ok := r.Median(turns(1), "x-"+name); ok {
			least, found = min(least, ratio), true
		}
	}
	return least, found
}

// speedUp is how many times as many checks two goroutines make as one, in the processor time
// that they have.
func speedUp(r measure.Results) (float64, bool) {
	one, ok := r.Median(turns(1), "weir-cpu-ns")
	two, also := r.Median(turns(2), "weir-cpu-ns")
	if !ok || !also {
		return 0, false
	}
	return 2 * one / two, true
}

// passed notes how long checks took by the wall clock.
func passed(goroutines ...int) func(measure.Results) string {
	return func(r measure.Results) string {
		var all []string
		for _, n := range goroutines {
			cpu, _ := r.Median(turns(n), "weir-cpu-ns")
			wall, _ := r.Median(turns(n), "weir-wall-ns")
			all = append(all, fmt.Sprintf("%.0f ns of processor time, %.0f ns by the wall clock with %d", cpu, wall, n))
		}
		return strings.Join(all, "; ")
	}
}

func bytesRow(what string, keys int) row {
	return row{"memory per live key, " + what + " keys", "at most 48 B", "engine", median(engineName(keys, 1), "rss_bytes_per_key"), "%.1f B", atMost(48), nil}
}

// inMemory are the targets of the counters alone.
var inMemory = []row{
	bytesRow("1 M", 1_000_000), bytesRow("10 M", 10_000_000), bytesRow("100 M", 100_000_000),
	{"worst check while 10 M keys are inserted, its processor time", "at most 1 ms", "memory", median("growth", "growth.cpu_us.max"), "%.0f µs", atMost(1000),
		noted("p99.9 %.1f µs", "growth", "growth.cpu_us.p99_9")},
	{"the same by the wall clock", "at most 1 ms", "memory", median("growth", "growth.latency_us.max"), "%.0f µs", atMost(1000),
		noted("p99.9 %.1f µs; doing nothing instead: p99.9 %.1f µs, worst %.0f µs", "growth", "growth.latency_us.p99_9", "growth.idle_us.p99_9", "growth.idle_us.max")},
	{"a check of 1 M uniform keys, compared with the fastest library", "at least 2x as fast", "turns", fasterThanAll, "%.2fx", atLeast(2),
		passed(1)},
	{"allocations of a check", "0", "libraries", median(library("weir", "uniform", 1), "allocs/op"), "%.0f", atMost(0), nil},
	{"two goroutines compared with one", "at least 1.8x as many", "turns", speedUp, "%.2fx", atLeast(1.8), passed(1, 2)},
	{"a denied hot key, in batches of 100", "below 40 ns", "engine", median("denied/batch=100", "cpu_ns_per_check"), "%.1f ns", below(40), byClock("denied/batch=100")},
	{"a denied hot key, alone", "below 120 ns", "engine", median("denied/batch=1", "cpu_ns_per_check"), "%.1f ns", below(120), byClock("denied/batch=1")},
	{"a check of 10 M uniform keys, in batches of 100", "at most 150 ns", "engine", median(engineName(10_000_000, 100), "cpu_ns_per_check"), "%.0f ns", atMost(150), byClock(engineName(10_000_000, 100))},
	{"memory a minute after 10 M keys have expired, compared with the idle process", "at most 1.2x", "memory", median("expiry", "x_idle"), "%.2fx", atMost(1.2),
		noted("after %.1f s", "expiry", "back_seconds")},
	{"the same of a node, compared with one that was asked about 1,000 keys", "at most 1.2x", "expiry", median("BenchmarkExpiry", "x-warm"), "%.2fx", atMost(1.2),
		noted("MiB: %.0f before the first check, %.0f then, %.0f full, %.0f after", "BenchmarkExpiry", "cold-MiB", "warm-MiB", "full-MiB", "after-MiB")},
	{"memory under a flood of 10 M keys, compared with a budget of 64 MiB", "at most 1.2x", "memory", median("cardinality", "x_budget"), "%.2fx", atMost(1.2), nil},
	{"counters at half of their limit that the flood has changed", "0 of 1000", "memory", median("cardinality", "forgotten"), "%.0f", atMost(0), nil},
}

const (
	wireBench  = "BenchmarkCPUPerCheck/"
	fewBench   = "BenchmarkFewCallers/"
	hotBench   = "BenchmarkHotDenied/"
	cpuUnit    = "cpu-µs/check"
	serverUnit = "server-cpu-µs/check"
	oneNode    = "/one-node"
	threeNodes = "/three-nodes/callers="

	leasesBench = "BenchmarkLeases" // of real nodes
)

// onWire are the targets of servers: processor time of all of them per check.
var onWire = []row{
	{"unary, one node", "at most 1.2x the baseline", "wire", median(wireBench+"unary"+oneNode, "x-baseline"), "%.2fx", atMost(1.2),
		noted("%.1f µs; %.2fx a baseline with a node's settings", wireBench+"unary"+oneNode, cpuUnit, "x-baseline-tuned")},
	threeRow("unary", "64 callers each", 192, "at most 1.5x one node", "x-one-node", "%.2fx", 1.5),
	threeRow("unary", "64 callers in all", 64, "at most 1.5x one node", "x-one-node", "%.2fx", 1.5),
	{"unary, three nodes, 3 callers in all", "at most 2x one node", "few", median(fewBench+"three-nodes", "x-one-node"), "%.2fx", atMost(2),
		noted("%.1f µs", fewBench+"three-nodes", cpuUnit)},
	{"batch of 100, one node", "at most 1 µs", "wire", median(wireBench+"batch100"+oneNode, cpuUnit), "%.2f µs", atMost(1), baselines("batch100")},
	threeRow("batch of 100", "64 callers each", 192, "at most 2 µs", cpuUnit, "%.2f µs", 2),
	threeRow("batch of 100", "64 callers in all", 64, "at most 2 µs", cpuUnit, "%.2f µs", 2),
	{"Envoy API, 100 descriptors, one node", "at most 2x the baseline", "wire", median(wireBench+"envoy100"+oneNode, "x-baseline"), "%.2fx", atMost(2),
		noted("%.2f µs; %.2fx a baseline with a node's settings", wireBench+"envoy100"+oneNode, cpuUnit, "x-baseline-tuned")},
	{"stream, 100 per message, pipelined, one node", "at most 0.8 µs", "wire", median(wireBench+"stream100"+oneNode, cpuUnit), "%.2f µs", atMost(0.8), baselines("stream100")},
	{"flood of one denied key that another of three nodes owns, the asked node", "at most 1.1x the baseline", "hot", median(hotBench+"three-nodes", "x-baseline"), "%.2fx", atMost(1.1),
		noted("%.1f µs; %.2fx a baseline with a node's settings", hotBench+"three-nodes", cpuUnit, "x-baseline-tuned")},
	{"the same, its owner's part of the asked node's", "below 5 %", "hot", median(hotBench+"three-nodes", "owner-busy-%"), "%.1f %%", below(5),
		noted("and what it needs when idle, %.1f %% of a core; %.1f %% together", hotBench+"three-nodes", "owner-idle-%-of-a-core", "owner-%")},
	{"what a hop adds to the 99th percentile, at half load on loopback", "below 1 ms", "hop", median("BenchmarkForwardLatency", "p99-added-µs"), "%.0f µs", below(1000),
		noted("%.0f µs with one node; the median by %.0f µs; per check all nodes' threads waited for a processor for %.0f µs, of one node for %.0f µs", "BenchmarkForwardLatency", "p99-one-node-µs", "p50-added-µs", "queued-three-nodes-µs", "queued-one-node-µs")},
	{"hot keys decided in the client from tokens that three nodes lend, with two cores for it alone", "at least 10 M checks/s", "client", perCores(2), "%.3g checks/s", atLeast(10e6),
		noted("%.2f µs of processor time in the client and %.3f in all nodes per check; %.3g checks/s while all programs shared the machine", leasesBench, "client-cpu-µs/check", serverUnit, "checks/s")},
	{"hot keys decided in the client from lent tokens, without a network", "at least 10 M checks/s", "client", median("BenchmarkLeases/keys=100", "checks/s"), "%.3g checks/s", atLeast(10e6), nil},
}

// perCores is how many checks a second the Go client with leases has processor time for, on so
// many cores.
func perCores(cores float64) func(measure.Results) (float64, bool) {
	return func(r measure.Results) (float64, bool) {
		micros, ok := r.Median(leasesBench, "client-cpu-µs/check")
		return cores * 1e6 / micros, ok
	}
}

// pathOf is the benchmark of a way to ask.
var pathOf = map[string]string{"unary": "unary", "batch of 100": "batch100", "Envoy API": "envoy100", "stream": "stream100"}

func threeRow(path, callers string, n int, target, unit, format string, most float64) row {
	name := fmt.Sprintf("%s%s%s%d", wireBench, pathOf[path], threeNodes, n)
	return row{path + ", three nodes, " + callers, target, "wire", median(name, unit), format, atMost(most), noted("%.2f µs, %.2fx one node", name, cpuUnit, "x-one-node")}
}

func baselines(path string) func(measure.Results) string {
	return noted("%.2fx the baseline, %.2fx one with a node's settings", wireBench+path+oneNode, "x-baseline", "x-baseline-tuned")
}

// paths are those whose cost is told in cores.
var paths = []struct{ what, part, name, unit string }{
	{"unary, one node", "wire", wireBench + "unary" + oneNode, cpuUnit},
	{"unary, three nodes", "wire", wireBench + "unary" + threeNodes + "192", cpuUnit},
	{"Envoy API, 100 descriptors per call, one node", "wire", wireBench + "envoy100" + oneNode, cpuUnit},
	{"Envoy API, 100 descriptors per call, three nodes", "wire", wireBench + "envoy100" + threeNodes + "192", cpuUnit},
	{"batch of 100, one node", "wire", wireBench + "batch100" + oneNode, cpuUnit},
	{"batch of 100, three nodes", "wire", wireBench + "batch100" + threeNodes + "192", cpuUnit},
	{"stream, 100 per message, one node", "wire", wireBench + "stream100" + oneNode, cpuUnit},
	{"stream, 100 per message, three nodes", "wire", wireBench + "stream100" + threeNodes + "18", cpuUnit},
	{"Go client, 64 callers of one check each, one node", "client", "BenchmarkClient/one-node/client/callers", serverUnit},
	{"Go client, 64 callers of one check each, three nodes", "client", "BenchmarkClient/three-nodes/client/callers", serverUnit},
	{"Go client with leases, 100 hot keys, three nodes", "client", leasesBench, serverUnit},
	{"one denied key that another node owns, unary", "hot", hotBench + "three-nodes", cpuUnit},
}
