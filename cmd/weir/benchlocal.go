package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
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
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "engine",
		Short: "Ask the counters of a node in this process",
		Long: `Ask the counters of a node in this process: hash, clock, locks, tables and
algorithm, without requests, rules and network. Every key has its counter before the
time runs. Memory per key is what they add to the process: of few keys it is mostly
what the tables take anyway. SIGINT ends it early.`,
		Example: `  weir bench engine
  weir bench engine --keys 10000000 --distribution zipf --algorithm gcra
  weir bench engine --batch 100 --goroutines 1 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := f.draw(cmd)
			if err != nil {
				return err
			}
			if err := checkQuantities(cmd, quantity{"goroutines", goroutines, bench.MaxCallers}, quantity{"batch", batch, bench.MaxBatch}); err != nil {
				return err
			}
			e := &bench.Engine{Keys: keys, Goroutines: int(goroutines), Batch: int(batch), Duration: f.duration}
			if e.Limit, err = parseLimit(algorithm, limit); err != nil {
				return usageError(cmd, "--%w", err)
			}
			return a.benchEngine(e, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&algorithm, "algorithm", algorithms.SlidingWindow.String(), "count by `NAME`: "+strings.Join(algorithms.Names(), ", "))
	flags.Int64Var(&limit, "limit", 1000, "allow `N` checks of a key per hour")
	flags.Int64Var(&goroutines, "goroutines", int64(runtime.GOMAXPROCS(0)), "ask from `N` goroutines")
	flags.Lookup("goroutines").DefValue = "the processors"
	flags.Int64Var(&batch, "batch", 1, "`N` checks at once, which read the clock once")
	f.addTo(cmd)
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func parseLimit(algorithm string, limit int64) (algorithms.Limit, error) {
	parsed, ok := algorithms.Parse(algorithm)
	if !ok {
		return algorithms.Limit{}, fmt.Errorf("algorithm: %q is not one of %s", algorithm, strings.Join(algorithms.Names(), ", "))
	}
	l := algorithms.Limit{Algorithm: parsed, Limit: limit, Window: int64(time.Hour)}
	return l, l.Validate()
}

func (a *app) benchEngine(e *bench.Engine, asJSON bool) error {
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler))
	defer stop()
	report, err := e.Run(ctx)
	if err != nil {
		return err
	}
	return a.printReport(asJSON, report, formatEngineReport(report))
}

func formatEngineReport(r bench.EngineReport) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, %d goroutines, batches of %d, %d keys (%s), %d counters, %.1fs\n\n",
		r.Algorithm, r.Goroutines, r.Batch, r.Keys, r.Distribution, r.Counters, r.Seconds)
	table := newTable(&out, "CHECKS", "ALLOWED", "DENIED", "CHECKS/S", "TIME/CHECK", "CPU/CHECK", "ALLOCS/CHECK", "MEMORY/KEY")
	table.row(r.Checks, r.Allowed, r.Denied, fmt.Sprintf("%.0f", r.ChecksPerSecond), fmt.Sprintf("%.1fns", r.Nanoseconds),
		fmt.Sprintf("%.1fns", r.CPU), fmt.Sprintf("%.3f", r.Allocations), fmt.Sprintf("%.1fB", r.Bytes))
	table.flush()
	return out.String()
}

func (a *app) benchFloorCommand() *cobra.Command {
	var listen, settings string
	cmd := &cobra.Command{
		Use:   "floor",
		Short: "Serve answers that cost the least",
		Long: `Serve checks as a node does, over gRPC and with the same messages, but decide nothing:
what "weir bench grpc" measures of it is the least that any node can cost. It runs until
SIGINT or SIGTERM.`,
		Example: `  weir bench floor --listen 127.0.0.1:7070
  weir bench grpc --target 127.0.0.1:7070    in another terminal`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if settings != settingsDefault && settings != settingsNode {
				return usageError(cmd, "--settings: %q is not one of %s, %s", settings, settingsDefault, settingsNode)
			}
			return a.benchFloor(listen, settings == settingsNode)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&listen, "listen", "127.0.0.1:0", "listen at `HOST:PORT`; port 0 picks a free one")
	flags.StringVar(&settings, "settings", settingsDefault, "`NAME` of gRPC's and Go's settings: default, or node (those of weir serve)")
	return cmd
}

const (
	settingsDefault = "default"
	settingsNode    = "node"
)

func (a *app) benchFloor(listen string, likeNode bool) error {
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler))
	defer stop()
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	address := l.Addr().String()
	fmt.Fprintf(a.stdout, "weir floor serves gRPC on %s (pid %d); try: weir bench grpc --target %s --server-pid %[2]d\n",
		address, os.Getpid(), dialable(address))
	return bench.ServeFloor(ctx, l, likeNode)
}
