package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

// grpcFlags are the flags of weir bench grpc.
type grpcFlags struct {
	nodeFlags
	keyFlags
	targets                                   []string
	mode, via                                 string
	batch, callers, window, rate, connections int64
	pids                                      []int64
	baseline                                  string
	domain                                    string
	cost                                      int64
	progress                                  bool
}

// Defaults of --callers and --connections. A stream has a window of messages under way, and
// package client puts what is asked at the same time into one message per connection.
const (
	defaultCallers           = 64
	defaultStreams           = 6
	defaultConnections       = 2
	defaultClientConnections = 1
)

func (a *app) benchGRPCCommand() *cobra.Command {
	f := grpcFlags{nodeFlags: nodeFlags{timeout: time.Second}}
	cmd := &cobra.Command{
		Use:   "grpc [KEY=VALUE...]",
		Short: "Ask nodes as fast as they answer, or at a rate",
		Long: `Ask nodes with --callers callers at once. Without --rate each caller asks again as soon
as it has its answer (a closed loop). With --rate calls are sent by the clock (an open
loop), and their latency counts from when they should have been sent, so that a server
that stalls cannot hide it. The checks are counted. SIGINT ends the command early.

--mode chooses the call:
  unary   one check
  batch   --batch checks
  stream  messages of --batch checks, --window of them under way on each stream, and one
          stream per caller
  envoy   ShouldRateLimit of envoy.service.ratelimit.v3 with --batch descriptors, which
          envoyproxy/ratelimit answers as well

--via chooses the client:
  calls   each caller makes its own calls
  client  all callers share one Go client (package client), which finds all nodes from one
          address, and sends checks that are made at the same time in one message
  leases  the same, and the client decides often used keys from tokens that a node lends it

The request is written as for "weir check". The identifier gets the number of the key at
its end. Envoy's descriptors have their entries in the order of the arguments.

With --server-pid the processor time of the servers is measured, which hardly depends on
what else runs. The memory by which they have grown per key is measured as well. It says
something for many new keys only, so ask a fresh node with --distribution sequential.
--baseline first puts the same load on a server that decides nothing, and shows how many times
its cost the servers have. That server has no TLS, so the cost of theirs is in the figure.

The exit code is 0 if every check was answered, 1 if some were not, and 2 if no node could
be asked.`,
		Example: `  weir bench grpc
  weir bench grpc user=load endpoint=/api/v1/posts --mode batch --distribution zipf
  weir bench grpc ip=10.0.0.0 --rate 2000 --duration 1m --json
  weir bench grpc --mode stream --callers 4 --window 16
  weir bench grpc --server-pid "$(pgrep -d, -x weir)" --baseline node
  weir bench grpc --via leases --distribution hot --keys 1000
  weir bench grpc --mode envoy --target 127.0.0.1:8081 --domain shop tenant=load`,
		RunE: func(cmd *cobra.Command, args []string) error {
			load, requests, err := f.load(cmd, args)
			if err != nil {
				return err
			}
			return a.benchGRPC(cmd, &f, load, requests)
		},
	}
	f.addTo(cmd)
	return cmd
}

func (f *grpcFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.targets, "target", nil, "`HOST:PORT,...` of the nodes to ask, each on its own connections (default the address in --node)")
	flags.StringVar(&f.mode, "mode", bench.Unary, "`NAME` of the call: "+strings.Join(bench.Modes(), ", "))
	flags.StringVar(&f.via, "via", bench.Direct, "`NAME` of the client: "+strings.Join(bench.Vias(), ", "))
	flags.Int64Var(&f.batch, "batch", 100, "`N` checks in a call or a message, except with --mode unary")
	flags.Int64Var(&f.callers, "callers", 0, fmt.Sprintf("at most `N` calls under way at once (default %d); with --mode stream, N streams (default %d)", defaultCallers, defaultStreams))
	flags.Int64Var(&f.window, "window", 8, "`N` messages under way on each stream of --mode stream")
	flags.Int64Var(&f.rate, "rate", 0, "send `N` checks per second by the clock (default as fast as answers come)")
	flags.Int64Var(&f.connections, "connections", 0, fmt.Sprintf("`N` connections to each target, shared by the callers (default %d; with --via client or leases %d)", defaultConnections, defaultClientConnections))
	f.keyFlags.addTo(cmd)
	addDomain(cmd, &f.domain)
	addCost(cmd, &f.cost)
	flags.Int64SliceVar(&f.pids, "server-pid", nil, "`PID,...` of the server processes on this machine to measure")
	flags.Lookup("server-pid").DefValue = ""
	flags.StringVar(&f.baseline, "baseline", "", "compare with a server that decides nothing, with the gRPC and Go settings `NAME`: default, or node")
	addProgress(cmd, &f.progress)
	f.nodeFlags.addTo(cmd)
}

// load checks what was given. The connections are still missing.
func (f *grpcFlags) load(cmd *cobra.Command, args []string) (*bench.Load, *bench.Requests, error) {
	keys, err := f.draw(cmd)
	if err != nil {
		return nil, nil, err
	}
	if err := f.check(cmd); err != nil {
		return nil, nil, err
	}
	attributes, err := parseTemplate(args)
	if err != nil {
		return nil, nil, usageError(cmd, "%w", err)
	}
	requests, err := bench.NewRequests(f.domain, f.cost, attributes, keys)
	if err != nil {
		return nil, nil, usageError(cmd, "%w", err)
	}
	load := &bench.Load{Mode: f.mode, Keys: keys, Callers: int(f.callers), Rate: f.rate, Duration: f.duration, Timeout: f.timeout}
	if f.mode != bench.Unary {
		load.Batch = int(f.batch)
	}
	if f.mode == bench.Stream {
		load.Window = int(f.window)
		load.Callers *= load.Window
	}
	for _, pid := range f.pids {
		load.PIDs = append(load.PIDs, int(pid))
	}
	return load, requests, nil
}

// check refuses flags that make no sense, and fills in those that depend on others.
func (f *grpcFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if !slices.Contains(bench.Modes(), f.mode) {
		return usageError(cmd, "--mode: %q is not one of %s", f.mode, strings.Join(bench.Modes(), ", "))
	}
	if !slices.Contains(bench.Vias(), f.via) {
		return usageError(cmd, "--via: %q is not one of %s", f.via, strings.Join(bench.Vias(), ", "))
	}
	callers, connections := int64(defaultCallers), int64(defaultConnections)
	mostCallers, mostConnections := int64(bench.MaxCallers), int64(bench.MaxConnections)
	if f.mode == bench.Stream {
		callers, mostCallers = defaultStreams, bench.MaxStreams
	}
	if f.via != bench.Direct {
		connections, mostConnections = defaultClientConnections, bench.MaxClientConnections
	}
	if !given("callers") {
		f.callers = callers
	}
	if !given("connections") {
		f.connections = connections
	}
	quantities := []quantity{
		{"callers", f.callers, 1, mostCallers}, {"connections", f.connections, 1, mostConnections},
		{"batch", f.batch, 1, bench.MaxBatch}, {"window", f.window, 1, bench.MaxWindow},
	}
	if given("rate") {
		quantities = append(quantities, quantity{"rate", f.rate, 1, bench.MaxRate})
	}
	if err := checkQuantities(cmd, quantities...); err != nil {
		return err
	}
	switch {
	case f.via != bench.Direct && (f.mode == bench.Stream || f.mode == bench.Envoy):
		return usageError(cmd, "--mode: %s cannot be combined with --via %s, which has streams of its own; allowed are %s and %s", f.mode, f.via, bench.Unary, bench.Batch)
	case f.via == bench.Leases && given("baseline"):
		return usageError(cmd, "--baseline: cannot be combined with --via %s, because a server that decides nothing lends no tokens", f.via)
	case given("batch") && f.mode == bench.Unary:
		return usageError(cmd, "--batch: cannot be combined with --mode %s, which sends one check per call", f.mode)
	case given("window") && f.mode != bench.Stream:
		return usageError(cmd, "--window: can only be given with --mode %s", bench.Stream)
	case given("baseline") && !slices.Contains(baselineSettings, f.baseline):
		return usageError(cmd, "--baseline: %q is not one of %s", f.baseline, strings.Join(baselineSettings, ", "))
	case f.timeout <= 0 || f.timeout > bench.MaxTimeout:
		return usageError(cmd, "--timeout: %v is not above 0 and at most %v", f.timeout, bench.MaxTimeout)
	case f.mode == bench.Envoy && f.cost < 0:
		return usageError(cmd, "--cost: is below 0, and --mode %s cannot give tokens back", f.mode)
	}
	return checkCost(cmd, f.cost)
}

// parseTemplate reads what is asked: by a user, if no identifier is given. That there is
// no attribute twice is up to parseRequest.
func parseTemplate(args []string) ([]bench.Attribute, error) {
	_, err := parseRequest(args)
	if errors.Is(err, errNobody) {
		args = append([]string{"user=user"}, args...)
		_, err = parseRequest(args)
	}
	var attributes []bench.Attribute
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		attributes = append(attributes, bench.Attribute{Key: key, Value: value})
	}
	return attributes, err
}

func (a *app) benchGRPC(cmd *cobra.Command, f *grpcFlags, load *bench.Load, requests *bench.Requests) error {
	a.locate(cmd, &f.nodeFlags)
	if err := a.secure(cmd, &f.nodeFlags); err != nil {
		return &exitError{err: err, code: 2}
	}
	ctx, stop := a.untilSignal(slog.New(slog.DiscardHandler), func() {})
	defer stop()
	where, targets := "--target", f.targets
	if len(targets) == 0 {
		where, targets = f.where, []string{f.node}
	}
	access := bench.Access{TLS: f.secured, Token: f.token}
	conns, err := f.connect(ctx, where, targets, access, requests)
	defer closeAll(conns)
	if err != nil {
		return &exitError{err: err, code: 2}
	}
	var bare *bench.Report
	if f.baseline != "" {
		if bare, err = a.runBaseline(ctx, f, *load, requests); err != nil {
			return &exitError{err: fmt.Errorf("--baseline: %w", err), code: 2}
		}
	}
	report, err := f.run(ctx, load, targets, access, conns, requests, a.progress(f.progress, ""))
	if err != nil {
		return &exitError{err: err, code: 2}
	}
	if bare != nil {
		report.CompareTo(*bare)
	}
	if err := a.printReport(f.json, report, formatReport(report)); err != nil {
		return err
	}
	if report.Errors > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// run makes the load on connections: each caller's stream on one of them, or all calls. A
// client makes its own connections to the targets.
func (f *grpcFlags) run(ctx context.Context, load *bench.Load, targets []string, access bench.Access, conns []*grpc.ClientConn, requests *bench.Requests, progress func(bench.Progress)) (bench.Report, error) {
	if f.via != bench.Direct {
		closeAll(conns)
		return f.runShared(ctx, load, targets, access, requests, progress)
	}
	shared := len(conns)
	if f.mode == bench.Stream {
		shared = int(f.callers)
	}
	load.Conns = nil
	for i := range shared {
		c, err := bench.NewConn(f.mode, conns[i%len(conns)], requests)
		if err != nil {
			return bench.Report{}, err
		}
		load.Conns = append(load.Conns, c)
	}
	report, err := load.Run(ctx, progress)
	if err != nil {
		return report, fmt.Errorf("--server-pid: %w", err)
	}
	report.Connections = len(conns)
	return report, nil
}

// runShared makes the load through a client that all callers share.
func (f *grpcFlags) runShared(ctx context.Context, load *bench.Load, targets []string, access bench.Access, requests *bench.Requests, progress func(bench.Progress)) (report bench.Report, err error) {
	shared, err := bench.NewShared(f.via, f.mode, targets, access, int(f.connections), f.timeout, requests, load.Keys)
	if err != nil {
		return report, err
	}
	defer func() {
		report.Client = shared.Close()
		report.Connections = report.Client.Nodes * int(f.connections)
	}()
	if err := shared.Await(ctx); err != nil {
		return report, err
	}
	shared.Load(load)
	if report, err = load.Run(ctx, progress); err != nil {
		return report, fmt.Errorf("--server-pid: %w", err)
	}
	report.Via = f.via
	return report, nil
}

// connect returns --connections to each target, also with an error.
func (f *grpcFlags) connect(ctx context.Context, where string, targets []string, access bench.Access, requests *bench.Requests) (conns []*grpc.ClientConn, err error) {
	for _, target := range targets {
		for range f.connections {
			conn, err := bench.Dial(target, access)
			if err != nil {
				return conns, fmt.Errorf("%s: %w", where, err)
			}
			conns = append(conns, conn)
			if err := f.look(ctx, conn, requests); err != nil {
				q := nodeFlags{node: target, timeout: f.timeout, secured: access.TLS}
				return conns, q.explain(err)
			}
		}
	}
	return conns, nil
}

func (f *grpcFlags) look(ctx context.Context, conn *grpc.ClientConn, requests *bench.Requests) error {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	return bench.Look(ctx, f.mode, conn, requests)
}

func closeAll(conns []*grpc.ClientConn) {
	for _, c := range conns {
		_ = c.Close() // nothing is under way
	}
}

// runBaseline makes the load on a bare server, in a process of its own so that its
// processor time can be told from the load's.
func (a *app) runBaseline(ctx context.Context, f *grpcFlags, load bench.Load, requests *bench.Requests) (*bench.Report, error) {
	bare, err := startBaseline(f.baseline)
	if err != nil {
		return nil, err
	}
	defer bare.stop()
	conns, err := f.connect(ctx, "--baseline", []string{bare.address}, bench.Access{}, requests)
	defer closeAll(conns)
	if err != nil {
		return nil, err
	}
	load.PIDs = nil
	if len(f.pids) > 0 {
		load.PIDs = []int{bare.pid}
	}
	report, err := f.run(ctx, &load, []string{bare.address}, bench.Access{}, conns, requests, a.progress(f.progress, "baseline: "))
	return &report, err
}
