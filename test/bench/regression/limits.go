package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/weirlimit/weir/test/bench/measure"
)

// limit is the most that something may be. Raise one only with a reason in the commit.
type limit struct {
	name, unit string
	// baseline names the baseline by which the value is divided, of the same unit; empty: none.
	baseline string
	most     float64
}

// limits leave room for the noise of a machine that does other things as well: the ratios
// of uniform and zipf were 0.5 to 0.8, those of hot 0.8 to 1.2.
var limits = []limit{
	{"BenchmarkCheck/weir/uniform", "allocs/op", "", 0},
	{"BenchmarkCheck/weir/hot", "allocs/op", "", 0},
	{"BenchmarkMatch/exact-10000", "allocs/op", "", 0},
	{"BenchmarkCheckRateLimit/one_limit", "allocs/op", "", 3}, // its text, and the answer's buffer
	{"BenchmarkCheckRateLimit/one_limit", "B/op", "", 200},
	{"BenchmarkCheckRateLimitBatch", "allocs/op", "", 3}, // of 100 checks
	{"BenchmarkCheckRateLimitBatch", "B/op", "", 5_000},
	{"BenchmarkShouldRateLimit", "allocs/op", "", 4},     // of 2 descriptors
	{"BenchmarkTracing/process/off", "allocs/op", "", 3}, // as one_limit: tracing that is off takes none
	{"BenchmarkTracing/process/1%", "allocs/op", "", 3},
	{memory, "allocs_per_check", "", 0.01},
	{memory, "rss_bytes_per_key", "", 56},
	{"BenchmarkCheck/weir/uniform", "ns/op", "BenchmarkCheck/maps/uniform", 1.5},
	{"BenchmarkCheck/weir/zipf", "ns/op", "BenchmarkCheck/maps/zipf", 1.75},
	{"BenchmarkCheck/weir/hot", "ns/op", "BenchmarkCheck/maps/hot", 2.5},
	{"BenchmarkTracing/gRPC/1%", "ns/op", "BenchmarkTracing/gRPC/off", 1.15}, // with the noise of a call
	// At 1 % tracing takes 3 % at most: by the next two lines 1.5 % for the calls that are traced, and 1.5 % for choosing them, as a
	// check in the process is a fortieth of a call.
	{"BenchmarkTracing/gRPC/all", "ns/op", "BenchmarkTracing/gRPC/off", 2.5},
	{"BenchmarkTracing/process/1%", "ns/op", "BenchmarkTracing/process/off", 1.75},
}

// measured returns the median of the rounds, false if it was not measured.
func (l limit) measured(r measure.Results) (float64, bool) {
	if l.baseline == "" {
		return r.Median(l.name, l.unit)
	}
	return r.MedianRatio(l.name, l.baseline, l.unit)
}

// check writes a table, and reports whether everything was measured and is within its limit.
func check(out io.Writer, r measure.Results) (ok bool) {
	ok = true
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tUNIT\tMEASURED\tAT MOST\t")
	for _, l := range limits {
		value, measured := l.measured(r)
		shown, verdict := fmt.Sprintf("%.4g", value), ""
		switch {
		case !measured:
			shown, verdict, ok = "-", "NOT MEASURED", false
		case value > l.most:
			verdict, ok = "TOO MUCH", false
		}
		unit := l.unit
		if l.baseline != "" {
			unit += " / " + l.baseline
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.4g\t%s\n", l.name, unit, shown, l.most, verdict)
	}
	return table.Flush() == nil && ok
}
