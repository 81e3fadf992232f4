// Command report measures what docs/performance.md says, and writes it there: the
// results as JSON, tables, and plots.
//
//	go run ./test/bench/report                   everything
//	go run ./test/bench/report -part wire,hop    these only; the others' results stay
//	go run ./test/bench/report -render           nothing; write the page from the results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// command stands in the markers of what it writes.
const command = "go run ./test/bench/report"

func main() {
	only := flag.String("part", "", "measure `NAME,...` only: "+strings.Join(partNames(), ", "))
	render := flag.Bool("render", false, "measure nothing, write the page from the stored results")
	dir := flag.String("docs", "docs", "`DIRECTORY` of performance.md")
	patience := flag.Duration("timeout", 25*time.Minute, "give up after `DURATION`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "report: takes no arguments, but got %q\n", flag.Arg(0))
		os.Exit(2)
	}
	chosen, err := choose(*only, *render)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if err := run(*dir, *patience, chosen); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// choose returns the parts to measure.
func choose(only string, render bool) ([]part, error) {
	switch {
	case render && only != "":
		return nil, errors.New("-render measures nothing, -part says what to measure; leave one of them out")
	case render:
		return nil, nil
	case only == "":
		return parts, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(parts, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-part: %q is not one of %s", name, strings.Join(partNames(), ", "))
		}
		chosen = append(chosen, parts[i])
	}
	return chosen, nil
}

// run measures the parts, and stores the results of each as soon as they are there. The
// page is written once.
func run(dir string, patience time.Duration, chosen []part) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	s, err := loadStore(filepath.Join(dir, "performance", "results.json"))
	if err != nil {
		return err
	}
	if len(chosen) > 0 {
		binaries, err := os.MkdirTemp("", "weir-report-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(binaries) }()
		if err := s.measure(ctx, binaries, chosen); err != nil {
			return err
		}
	}
	return render(dir, s)
}
