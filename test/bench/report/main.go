// Command report measures what docs/performance.md says, and writes it there:
// the results as JSON, tables, and plots.
//
//	go run ./test/bench/report                   everything
//	go run ./test/bench/report -part wire,hop    these only; the others' results stay
//	go run ./test/bench/report -resume           what was not measured of this commit yet
//	go run ./test/bench/report -short            a trial, in some minutes; the page says so
//	go run ./test/bench/report -render           nothing; write the page from the results
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// command stands in the markers of what it writes.
const command = "go run ./test/bench/report"

// options are what was asked for.
type options struct {
	only                  string
	short, resume, render bool
}

func main() {
	var o options
	flag.StringVar(&o.only, "part", "", "measure `NAME,...` only: "+strings.Join(partNames(), ", "))
	flag.BoolVar(&o.short, "short", false, "measure shortly and once, with fewer keys: to see that it runs")
	flag.BoolVar(&o.resume, "resume", false, "leave out parts whose results are of this commit, and of the same form")
	flag.BoolVar(&o.render, "render", false, "measure nothing, write the page from the stored results")
	root := flag.String("to", ".", "`DIRECTORY` that docs/performance.md and docs/performance are in")
	patience := flag.Duration("timeout", time.Hour, "give up after `DURATION`")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "report: takes no arguments, but got %q\n", flag.Arg(0))
		os.Exit(2)
	}
	chosen, err := o.choose()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if err := run(*root, *patience, chosen, o); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

// choose returns the parts to measure.
func (o options) choose() ([]part, error) {
	all := parts(o.short)
	switch {
	case o.render && (o.only != "" || o.short || o.resume):
		return nil, errors.New("-render measures nothing, -part, -short and -resume say what to measure; leave it or them out")
	case o.render:
		return nil, nil
	case o.only == "":
		return all, nil
	}
	var chosen []part
	for name := range strings.SplitSeq(o.only, ",") {
		i := slices.IndexFunc(all, func(p part) bool { return p.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-part: %q is not one of %s", name, strings.Join(partNames(), ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// run measures the parts, and stores the results of each and writes the page as soon as
// they are there, so that what breaks off can be resumed.
func run(root string, patience time.Duration, chosen []part, o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not done after %v", patience))
	defer cancel()
	s, err := loadStore(resultsIn(root))
	if err != nil {
		return err
	}
	if o.render {
		return render(root, s)
	}
	m := measurement{store: s, root: root, commit: commit(ctx), short: o.short, resume: o.resume}
	return m.run(ctx, chosen)
}
