package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

func (a *app) benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench COMMAND",
		Short: "Make load, and measure what a check costs",
		Long: `Make load, and measure what a check costs: on nodes, in the counters alone, and at
least.`,
		Example: `  weir bench grpc --callers 64             as fast as a node answers
  weir bench grpc --rate 5000 --json       5000 checks per second, whatever happens
  weir bench engine --keys 1000000         the counters of a node, without a network`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.benchGRPCCommand(), a.benchEngineCommand(), a.benchFloorCommand())
	return cmd
}

// keyFlags are those of commands that draw keys.
type keyFlags struct {
	keys         int64
	distribution string
	duration     time.Duration
}

func (f *keyFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.Int64Var(&f.keys, "keys", 100_000, "ask about `N` keys")
	flags.StringVar(&f.distribution, "distribution", bench.Uniform,
		"how keys are drawn, by `NAME`: uniform, zipf (exponent 1.1), hot (9 of 10 draws are one key), sequential")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "go on for `DURATION`")
}

// draw checks the flags and returns the keys.
func (f *keyFlags) draw(cmd *cobra.Command) (*bench.Keys, error) {
	if f.duration <= 0 || f.duration > bench.MaxDuration {
		return nil, usageError(cmd, "--duration: %v is not above 0 and at most %v", f.duration, bench.MaxDuration)
	}
	keys, err := bench.NewKeys(f.distribution, f.keys)
	if err != nil {
		return nil, usageError(cmd, "--%w", err)
	}
	return keys, nil
}

// quantity is a flag that says how many.
type quantity struct {
	flag        string
	value, most int64
}

// checkQuantities refuses those that are not between 1 and the most.
func checkQuantities(cmd *cobra.Command, quantities ...quantity) error {
	for _, c := range quantities {
		if c.value < 1 || c.value > c.most {
			return usageError(cmd, "--%s: %d is not between 1 and %d", c.flag, c.value, c.most)
		}
	}
	return nil
}

// grpcFlags are the flags of weir bench grpc.
type grpcFlags struct {
	asking
	keyFlags
	targets                           []string
	mode                              string
	batch, callers, rate, connections int64
	pids                              []int64
	domain                            string
	cost                              int64
	progress                          bool
}

const (
	modeUnary = "unary"
	modeBatch = "batch"
)

func (a *app) benchGRPCCommand() *cobra.Command {
	f := grpcFlags{asking: asking{timeout: time.Second}}
	cmd := &cobra.Command{
		Use:   "grpc [KEY=VALUE...]",
		Short: "Ask nodes as fast as they answer, or at a rate",
		Long: `Ask nodes, as many callers at once as --callers says: each as soon as it has its last
answer (a closed loop), or with --rate by the clock (an open loop), whether answers
come or not. The latency of an open loop counts from when a call should have been sent,
so that a server that stalls cannot hide it.

What is asked is written as for "weir check"; the identifier gets the number of the
key at its end. It really is counted. SIGINT ends it early.

The exit code is 0 if every check was answered, 1 if some were not, and 2 if nothing
could be asked.`,
		Example: `  weir bench grpc
  weir bench grpc user=load endpoint=/api/v1/posts --mode batch --distribution zipf
  weir bench grpc ip=10.0.0.0 --rate 2000 --duration 1m --json
  weir bench grpc --target 127.0.0.1:9090 --server-pid "$(pgrep -x weir)"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			load, err := f.load(cmd, args)
			if err != nil {
				return err
			}
			return a.benchGRPC(cmd, &f, load)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *grpcFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.targets, "target", nil, "ask at `HOST:PORT,...`, each on its own connections (default the address in --node)")
	flags.StringVar(&f.mode, "mode", modeUnary, "`NAME` of the call: unary (one check) or batch")
	flags.Int64Var(&f.batch, "batch", 100, "`N` checks in a call of --mode batch")
	flags.Int64Var(&f.callers, "callers", 64, "`N` calls under way at once, at most")
	flags.Int64Var(&f.rate, "rate", 0, "send `N` checks per second by the clock (default as fast as answers come)")
	flags.Int64Var(&f.connections, "connections", 2, "share `N` connections to each target")
	f.keyFlags.addTo(cmd)
	addDomain(cmd, &f.domain)
	addCost(cmd, &f.cost)
	flags.Int64SliceVar(&f.pids, "server-pid", nil, "measure the server process `PID,...` on this machine")
	flags.Lookup("server-pid").DefValue = ""
	flags.BoolVar(&f.progress, "progress", false, "tell every second how it goes, not only on a terminal")
	f.asking.addTo(cmd)
}

// load checks what was given. The connections are still missing.
func (f *grpcFlags) load(cmd *cobra.Command, args []string) (*bench.Load, error) {
	keys, err := f.draw(cmd)
	if err != nil {
		return nil, err
	}
	quantities := []quantity{{"callers", f.callers, bench.MaxCallers}, {"connections", f.connections, bench.MaxConnections}, {"batch", f.batch, bench.MaxBatch}}
	if cmd.Flags().Changed("rate") {
		quantities = append(quantities, quantity{"rate", f.rate, bench.MaxRate})
	}
	if err := checkQuantities(cmd, quantities...); err != nil {
		return nil, err
	}
	if f.timeout <= 0 || f.timeout > bench.MaxTimeout {
		return nil, usageError(cmd, "--timeout: %v is not above 0 and at most %v", f.timeout, bench.MaxTimeout)
	}
	if err := checkCost(cmd, f.cost); err != nil {
		return nil, err
	}
	template, err := parseTemplate(args)
	if err != nil {
		return nil, usageError(cmd, "%w", err)
	}
	template.Domain, template.TokensRequested = f.domain, f.cost
	load := &bench.Load{Keys: keys, Callers: int(f.callers), Rate: f.rate, Duration: f.duration, Timeout: f.timeout}
	if load.Request, err = bench.Requests(template, keys); err != nil {
		return nil, usageError(cmd, "%w", err)
	}
	switch {
	case f.mode == modeBatch:
		load.Batch = int(f.batch)
	case f.mode != modeUnary:
		return nil, usageError(cmd, "--mode: %q is not one of %s, %s", f.mode, modeUnary, modeBatch)
	case cmd.Flags().Changed("batch"):
		return nil, usageError(cmd, "--batch: only --mode %s has batches", modeBatch)
	}
	for _, pid := range f.pids {
		load.PIDs = append(load.PIDs, int(pid))
	}
	return load, nil
}

// parseTemplate is parseRequest, with a user if nobody is said to ask.
func parseTemplate(args []string) (*weirv1.RateLimitRequest, error) {
	template, err := parseRequest(args)
	if errors.Is(err, errNobody) {
		return parseRequest(append([]string{"user=user"}, args...))
	}
	return template, err
}

func (a *app) benchGRPC(cmd *cobra.Command, f *grpcFlags, load *bench.Load) error {
	a.locate(cmd, &f.asking)
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler))
	defer stop()
	clients, err := f.connect(ctx, load)
	defer func() {
		for _, c := range clients {
			_ = c.Close() // nothing is under way
		}
	}()
	if err != nil {
		return &exitError{err: err, code: 2}
	}
	report, err := load.Run(ctx, a.progress(f.progress))
	if err != nil {
		return &exitError{err: fmt.Errorf("--server-pid: %w", err), code: 2}
	}
	if err := a.printReport(f.json, report, formatReport(report)); err != nil {
		return err
	}
	if report.Errors > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// connect gives the load its connections, and returns them, also with an error.
func (f *grpcFlags) connect(ctx context.Context, load *bench.Load) (clients []*client.Node, err error) {
	where, targets := "--target", f.targets
	if len(targets) == 0 {
		where, targets = f.where, []string{f.node}
	}
	for _, target := range targets {
		for range f.connections {
			c, err := client.NewNode(target)
			if err != nil {
				return clients, fmt.Errorf("%s: %w", where, err)
			}
			clients, load.Conns = append(clients, c), append(load.Conns, c)
			if err := f.look(ctx, c, load); err != nil {
				q := asking{node: target, timeout: f.timeout}
				return clients, q.explain(err)
			}
		}
	}
	return clients, nil
}

// look asks without counting: it connects, and finds out what would fail all the time.
func (f *grpcFlags) look(ctx context.Context, c *client.Node, load *bench.Load) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	request := load.Request(0)
	request.Peek = true
	_, err := c.Check(ctx, request)
	return err
}

// progress returns what tells progress to a person, or nil if nobody wants to know.
func (a *app) progress(wanted bool) func(bench.Progress) {
	if !wanted && !isTerminal(a.stderr) {
		return nil
	}
	var last bench.Progress
	return func(p bench.Progress) {
		rate := float64(p.Checks-last.Checks) / (p.Elapsed - last.Elapsed).Seconds()
		fmt.Fprintf(a.stderr, "%4.0fs  %.0f checks/s, %d denied, %d errors\n", p.Elapsed.Seconds(), rate, p.Denied, p.Errors)
		last = p
	}
}

// printReport writes the text for a person or the report for a program.
func (a *app) printReport(asJSON bool, report any, text string) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(report)
	}
	_, err := fmt.Fprint(a.stdout, text)
	return err
}

func formatReport(r bench.Report) string {
	var out strings.Builder
	call := "unary"
	if r.Batch > 0 {
		call = fmt.Sprintf("batches of %d", r.Batch)
	}
	loop := "closed loop"
	if r.Rate > 0 {
		loop = fmt.Sprintf("open loop of %d checks/s", r.Rate)
	}
	fmt.Fprintf(&out, "%s, %s, %d callers, %d connections, %d keys (%s), %.1fs\n\n",
		loop, call, r.Callers, r.Connections, r.Keys, r.Distribution, r.Seconds)
	table := newTable(&out, "CHECKS", "ALLOWED", "DENIED", "FAIL_OPEN", "ERRORS", "CHECKS/S")
	table.row(r.Checks, r.Allowed, r.Denied, r.FailOpen, r.Errors, fmt.Sprintf("%.0f", r.ChecksPerSecond))
	table.flush()
	out.WriteString("\n")
	table = newTable(&out, "TIME", "P50", "P90", "P99", "P99.9", "MAX")
	writePercentiles(table, "latency of a call", r.Latency)
	if r.SendDelay != nil {
		writePercentiles(table, "of it, not yet sent", *r.SendDelay)
	}
	table.flush()
	out.WriteString("\n")
	table = newTable(&out, "PROCESS", "CPU/CHECK", "MEMORY")
	table.row("client", fmt.Sprintf("%.2fµs", r.ClientCPU), "-")
	for _, s := range r.Servers {
		if s.Gone {
			table.row(s.PID, "has ended", "-")
			continue
		}
		table.row(s.PID, fmt.Sprintf("%.2fµs", s.CPU), fmt.Sprintf("%.1fMiB", float64(s.RSS)/(1<<20)))
	}
	table.flush()
	writeTrouble(&out, r)
	return out.String()
}

// writeTrouble says what the figures above leave out.
func writeTrouble(out *strings.Builder, r bench.Report) {
	if r.Unsent > 0 {
		fmt.Fprintf(out, "\n%d checks were not sent in time, as all callers were waiting: the rate is more than %d callers and the servers can do\n",
			r.Unsent, r.Callers)
	}
	if r.Errors > 0 {
		var codes []string
		for code, n := range r.Failures {
			codes = append(codes, fmt.Sprintf("%s %d", code, n))
		}
		slices.Sort(codes)
		fmt.Fprintf(out, "\nno answer: %s\n", strings.Join(codes, ", "))
	}
}

func writePercentiles(t table, name string, p bench.Percentiles) {
	t.row(name, formatMicros(p.P50), formatMicros(p.P90), formatMicros(p.P99), formatMicros(p.P999), formatMicros(p.Max))
}

// formatMicros shows four digits, as in "1.234ms".
func formatMicros(micros float64) string {
	d := time.Duration(micros * float64(time.Microsecond))
	for unit := time.Second; unit > time.Microsecond; unit /= 1000 {
		if d >= unit {
			return d.Round(unit / 1000).String()
		}
	}
	return d.Round(time.Microsecond / 10).String()
}
