// Command accuracy measures how exactly the algorithms limit, and draws what
// they make of a burst. It writes the tables and plots of docs/algorithms.md:
//
//	go run ./test/accuracy
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/test/docs/docwriter"
)

//go:generate go run . -docs ../../docs

// published is the trace that the tables are about: as many sources as
// Cloudflare had, and a hundredth of the requests.
var published = traceConfig{requests: 4_000_000, sources: 270_000, length: time.Hour, seed: 1}

// publishedLimits are those that the trace is held against, per minute: one that
// many sources reach, and one that few do.
var publishedLimits = []int64{60, 6000}

// observedThresholds are those that the trace is observed at, per minute.
var observedThresholds = []int64{60, 600, 6000}

// command stands in the markers of what it writes.
const command = "go run ./test/accuracy"

func main() {
	dir := flag.String("docs", "docs", "directory of algorithms.md")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	for _, l := range plotted {
		file := filepath.Join(dir, "algorithms", l.Algorithm.String()+".svg")
		if err := os.WriteFile(file, plot(l), 0o644); err != nil {
			return err
		}
	}
	page := filepath.Join(dir, "algorithms.md")
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	if text, err = docwriter.Replace(text, command, measure(published)); err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return os.WriteFile(page, text, 0o644)
}

// measure replays a trace against everything and returns the tables.
func measure(c traceConfig) []byte {
	trace := makeTrace(c)
	var tables []byte
	for _, limit := range publishedLimits {
		var outcomes []outcome
		for _, name := range algorithms.Names() {
			a, _ := algorithms.Parse(name)
			outcomes = append(outcomes, replay(algorithms.Limit{Algorithm: a, Limit: limit, Window: int64(time.Minute)}, trace, c.sources))
		}
		tables = appendReplayed(tables, outcomes)
	}
	var observed []outcome
	for _, threshold := range observedThresholds {
		observed = append(observed, observe(threshold, int64(time.Minute), trace, c.sources))
	}
	return appendObserved(tables, c, observed)
}
