package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

func (a *app) benchEngineCommand() *cobra.Command {
	var f keyFlags
	var algorithm string
	var limit, goroutines, batch int64
	var grow bool
	var out localFlags
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Measure the counters of a node in this process",
		Long: `Measure the counters of a node in this process: hash, clock, locks, tables and
algorithm, without requests, rules and network. Every key gets its counter before the
time runs, and expired ones are swept, as in a node. Memory per key is what the counters
add to the process; with few keys it is mostly the fixed size of the tables. SIGINT ends
the command early.

With --grow one goroutine checks single keys while the others make the counters. The
result is how long a check waits while tables grow. For comparison it has the time of
doing nothing instead, which shows the effect of other processes, and the processor time
of the checks, which other processes do not affect.`,
		Example: `  weir bench engine
  weir bench engine --keys 10000000 --grow
  weir bench engine --keys 10000000 --distribution zipf --algorithm gcra
  weir bench engine --batch 100 --goroutines 1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := f.draw(cmd)
			if err != nil {
				return err
			}
			if err := checkQuantities(cmd, quantity{"goroutines", goroutines, 1, bench.MaxCallers}, quantity{"batch", batch, 1, bench.MaxBatch}); err != nil {
				return err
			}
			e := &bench.Engine{Keys: keys, Goroutines: int(goroutines), Batch: int(batch), Duration: f.duration, Grow: grow, Tell: a.teller(out.progress)}
			if e.Limit, err = parseLimit(algorithm, limit, time.Hour); err != nil {
				return usageError(cmd, "--%w", err)
			}
			return a.benchLocal(out.json, func(ctx context.Context) (any, string, error) {
				report, err := e.Run(ctx)
				return report, formatEngineReport(report), err
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&algorithm, "algorithm", algorithms.SlidingWindow.String(), "algorithm `NAME`: "+strings.Join(algorithms.Names(), ", "))
	flags.Int64Var(&limit, "limit", 1000, "allow `N` checks of a key per hour")
	flags.Int64Var(&goroutines, "goroutines", int64(runtime.GOMAXPROCS(0)), "check from `N` goroutines")
	flags.Lookup("goroutines").DefValue = "the processors"
	flags.Int64Var(&batch, "batch", 1, "`N` checks at once, with one reading of the clock")
	flags.BoolVar(&grow, "grow", false, "measure single checks while the counters are made")
	f.addTo(cmd)
	out.addTo(cmd)
	return cmd
}

// localFlags say what commands that measure this process write.
type localFlags struct{ json, progress bool }

func (f *localFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	addProgress(cmd, &f.progress)
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

func addProgress(cmd *cobra.Command, progress *bool) {
	cmd.Flags().BoolVar(progress, "progress", false, "print the progress every second, even if the output is not a terminal")
}

func parseLimit(algorithm string, limit int64, window time.Duration) (algorithms.Limit, error) {
	parsed, ok := algorithms.Parse(algorithm)
	if !ok {
		return algorithms.Limit{}, fmt.Errorf("algorithm: %q is not one of %s", algorithm, strings.Join(algorithms.Names(), ", "))
	}
	l := algorithms.Limit{Algorithm: parsed, Limit: limit, Window: int64(window)}
	return l, l.Validate()
}

// benchLocal runs a benchmark of this process until it is done or a signal comes, and
// prints what it reports.
func (a *app) benchLocal(asJSON bool, run func(context.Context) (report any, text string, err error)) error {
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler), func() {})
	defer stop()
	report, text, err := run(ctx)
	if err != nil {
		return err
	}
	return a.printReport(asJSON, report, text)
}

func formatEngineReport(r bench.EngineReport) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d goroutines, batches of %d, %d keys (%s), %d counters, %.1fs\n\n",
		r.Algorithm, r.Goroutines, r.Batch, r.Keys, r.Distribution, r.Counters, r.Seconds)
	table := newTable(&out, "CHECKS", "ALLOWED", "DENIED", "CHECKS/S", "TIME/CHECK", "CPU/CHECK", "ALLOCS/CHECK", "MEMORY/KEY")
	table.row(r.Checks, r.Allowed, r.Denied, fmt.Sprintf("%.0f", r.ChecksPerSecond), fmt.Sprintf("%.1fns", r.Nanoseconds),
		fmt.Sprintf("%.1fns", r.CPU), fmt.Sprintf("%.3f", r.Allocations), fmt.Sprintf("%.1fB", r.Bytes))
	table.flush()
	if r.Growth != nil {
		fmt.Fprintf(&out, "\n%d checks while the counters were made, %.1fs\n\n", r.Growth.Checks, r.Growth.Seconds)
		writeGrowth(&out, r.Growth)
	}
	return out.String()
}

func writeGrowth(out *strings.Builder, g *bench.Growth) {
	table := newTable(out, "TIME", "P50", "P90", "P99", "P99.9", "MAX")
	writePercentiles(table, "of a check", g.Latency)
	writePercentiles(table, "of nothing instead", g.Idle)
	if g.CPU != nil {
		writePercentiles(table, "of a check, on a processor", *g.CPU)
	}
	table.flush()
}

func (a *app) benchExpiryCommand() *cobra.Command {
	e := bench.Expiry{Goroutines: runtime.GOMAXPROCS(0)}
	var algorithm string
	var keys int64
	var window time.Duration
	var within float64
	var out localFlags
	cmd := &cobra.Command{
		Use:   "expiry",
		Short: "Measure how memory comes back when counters expire",
		Long: `Make a counter for every key in this process, and wait until all have expired and their
memory is given back to the operating system. Checks of a thousand keys go on.

Memory is the resident memory of the process: before the first counter, with all, and at
the end. The time counts from two windows after the last counter was made, when all have
expired with any algorithm. SIGINT ends the command early.

The exit code is 0 if the memory came back in time, and 1 if it did not.`,
		Example: `  weir bench expiry
  weir bench expiry --keys 1000000 --window 2s --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkQuantities(cmd, quantity{"keys", keys, 1, bench.MaxKeys}); err != nil {
				return err
			}
			if e.Patience <= 0 || e.Patience > bench.MaxDuration {
				return usageError(cmd, "--patience: %v is not above 0 and at most %v", e.Patience, bench.MaxDuration)
			}
			if window > bench.MaxDuration {
				return usageError(cmd, "--window: %v is more than %v", window, bench.MaxDuration)
			}
			if !(within > 0 && within <= maxWithin) {
				return usageError(cmd, "--within: %v is not above 0 and at most %v", within, maxWithin)
			}
			limit, err := parseLimit(algorithm, 1000, window)
			if err != nil {
				return usageError(cmd, "--%w", err)
			}
			e.Keys, e.Limit, e.Within, e.Tell = uint64(keys), limit, within/100, a.teller(out.progress)
			var back bool
			err = a.benchLocal(out.json, func(ctx context.Context) (any, string, error) {
				report, err := e.Run(ctx)
				back = report.Back
				return report, formatExpiryReport(report), err
			})
			if err == nil && !back {
				return &exitError{code: 1}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Int64Var(&keys, "keys", 10_000_000, "make counters of `N` keys")
	flags.StringVar(&algorithm, "algorithm", algorithms.SlidingWindow.String(), "algorithm `NAME`: "+strings.Join(algorithms.Names(), ", "))
	flags.DurationVar(&window, "window", 15*time.Second, "`DURATION` of the window, which must be longer than it takes to make the counters")
	flags.DurationVar(&e.Patience, "patience", time.Minute, "wait `DURATION` for the memory after all counters have expired")
	flags.Float64Var(&within, "within", 20, "the memory is back when it is at most `PERCENT` above the memory before the first counter")
	out.addTo(cmd)
	return cmd
}

// maxWithin is the most of --within, in percent.
const maxWithin = 1000

func formatExpiryReport(r bench.ExpiryReport) string {
	var out strings.Builder
	verdict := fmt.Sprintf("back after %.1fs", r.BackSeconds)
	if !r.Back {
		verdict = fmt.Sprintf("not back after %.1fs", r.BackSeconds)
	}
	fmt.Fprintf(&out, "%d keys, made in %.1fs; the memory is %s\n\n", r.Keys, r.FillSeconds, verdict)
	table := newTable(&out, "IDLE", "FULL", "AFTER", "AFTER/IDLE", "COUNTERS")
	table.row(formatMiB(r.Idle), formatMiB(r.Full), formatMiB(r.After), fmt.Sprintf("%.2f", r.XIdle), r.Counters)
	table.flush()
	if r.Checks != nil {
		fmt.Fprintf(&out, "\n%d checks went on\n\n", r.Checks.Checks)
		writeGrowth(&out, r.Checks)
	}
	return out.String()
}

func (a *app) benchCardinalityCommand() *cobra.Command {
	f := bench.Cardinality{Goroutines: runtime.GOMAXPROCS(0)}
	var keys, victims, budget int64
	var out localFlags
	cmd := &cobra.Command{
		Use:   "cardinality",
		Short: "Flood a budget of memory with fresh keys",
		Long: `Use half of the limit of some keys in this process, and then check many more keys than
the memory budget has room for, each once. The result is how much memory they took, and
how many of the first keys do not have exactly the other half of their limit left.
SIGINT ends the command early.

The exit code is 0 if nothing was forgotten, and 1 otherwise.`,
		Example: `  weir bench cardinality
  weir bench cardinality --budget 256 --keys 50000000 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkQuantities(cmd, quantity{"keys", keys, 1, bench.MaxKeys}, quantity{"victims", victims, 1, maxVictims}, quantity{"budget", budget, minBudget, maxBudget}); err != nil {
				return err
			}
			f.Keys, f.Victims, f.Budget, f.Tell = uint64(keys), uint64(victims), budget<<20, a.teller(out.progress)
			var forgotten uint64
			err := a.benchLocal(out.json, func(ctx context.Context) (any, string, error) {
				report, err := f.Run(ctx)
				forgotten = report.Forgotten
				return report, formatCardinalityReport(report), err
			})
			if err == nil && forgotten > 0 {
				return &exitError{code: 1}
			}
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.Int64Var(&keys, "keys", 10_000_000, "check `N` new keys")
	flags.Int64Var(&victims, "victims", 1000, "use half of the limit of `N` keys before the flood")
	flags.Int64Var(&budget, "budget", 64, "memory budget of the counters, `N` MiB")
	out.addTo(cmd)
	return cmd
}

// Bounds of weir bench cardinality.
const (
	maxVictims = 1_000_000
	minBudget  = 8 // MiB, as of weir serve --counter-memory
	maxBudget  = 64 << 10
)

func formatCardinalityReport(r bench.CardinalityReport) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d fresh keys, a budget of %s, %d keys at half of their limit, %.1fs\n\n", r.Keys, formatMiB(r.Budget), r.Victims, r.Seconds)
	table := newTable(&out, "MEMORY", "MEMORY/BUDGET", "COUNTERS", "EVICTED", "FORGOTTEN")
	table.row(formatMiB(r.Peak), fmt.Sprintf("%.2f", r.XBudget), r.Counters, r.Evicted, r.Forgotten)
	table.flush()
	return out.String()
}
