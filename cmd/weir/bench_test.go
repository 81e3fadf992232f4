package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/cmd/weir/internal/bench"
	"github.com/weirlimit/weir/node"
)

func TestBenchUsageErrors(t *testing.T) {
	tests := []struct{ args, want string }{
		{"grpc --callers=0", `--callers: 0 is not between 1 and 10000`},
		{"grpc --callers=10001", `--callers: 10001 is not between 1 and 10000`},
		{"grpc --callers=x", `--callers: "x" is not a whole number`},
		{"grpc --connections=257", `--connections: 257 is not between 1 and 256`},
		{"grpc --rate=0", `--rate: 0 is not between 1 and 10000000`},
		{"grpc --mode=x", `--mode: "x" is not one of unary, batch, stream, envoy`},
		{"grpc --batch=10", `--batch: cannot be combined with --mode unary, which sends one check per call`},
		{"grpc --mode=batch --window=2", `--window: can only be given with --mode stream`},
		{"grpc --mode=stream --window=101", `--window: 101 is not between 1 and 100`},
		{"grpc --mode=stream --callers=101", `--callers: 101 is not between 1 and 100`},
		{"grpc --via=x", `--via: "x" is not one of calls, client, leases`},
		{"grpc --via=client --connections=9", `--connections: 9 is not between 1 and 8`},
		{"grpc --via=client --mode=stream", `--mode: stream cannot be combined with --via client, which has streams of its own; allowed are unary and batch`},
		{"grpc --via=leases --mode=envoy", `--mode: envoy cannot be combined with --via leases, which has streams of its own; allowed are unary and batch`},
		{"grpc --via=leases --baseline=node", `--baseline: cannot be combined with --via leases, because a server that decides nothing lends no tokens`},
		{"grpc --mode=envoy --cost=-1", `--cost: is below 0, and --mode envoy cannot give tokens back`},
		{"grpc --baseline=x", `--baseline: "x" is not one of default, node`},
		{"grpc user=a user=b", `user is given twice`},
		{"grpc --mode=batch --batch=1001", `--batch: 1001 is not between 1 and 1000`},
		{"grpc --keys=-1", `--keys: -1 is not between 1 and 100000000`},
		{"grpc --distribution=normal", `--distribution: "normal" is not one of uniform, zipf, hot, sequential`},
		{"grpc --duration=0s", `--duration: 0s is not above 0 and at most 1h0m0s`},
		{"grpc --duration=2h", `--duration: 2h0m0s is not above 0 and at most 1h0m0s`},
		{"grpc --timeout=61s", `--timeout: 1m1s is not above 0 and at most 1m0s`},
		{"grpc --server-pid=x", `--server-pid: "x" is not a whole number`},
		{"grpc --cost=0", `--cost: 0 is not between 1 and 2147483648, or below 0 to give tokens back; to look and count nothing pass --peek`},
		{"grpc alice", `"alice" is not KEY=VALUE, such as user=alice`},
		{"grpc ip=alice", `ip: "alice" is not the first of some IPv4 addresses, such as 10.0.0.0`},
		{"grpc ip=::1", `ip: "::1" is not the first of some IPv4 addresses, such as 10.0.0.0`},
		{"engine x", `engine takes no arguments, but got "x"`},
		{"engine --keys=100000001", `--keys: 100000001 is not between 1 and 100000000`},
		{"engine --goroutines=0", `--goroutines: 0 is not between 1 and 10000`},
		{"engine --batch=1001", `--batch: 1001 is not between 1 and 1000`},
		{"engine --algorithm=x", `--algorithm: "x" is not one of ` + strings.Join(algorithms.Names(), ", ")},
		{"expiry --keys=0", `--keys: 0 is not between 1 and 100000000`},
		{"expiry --window=0s", `--window: 0s is not between 10ms and 8784h0m0s`},
		{"expiry --window=2h", `--window: 2h0m0s is more than 1h0m0s`},
		{"expiry --patience=0s", `--patience: 0s is not above 0 and at most 1h0m0s`},
		{"expiry --within=0", `--within: 0 is not above 0 and at most 1000`},
		{"expiry --within=NaN", `--within: NaN is not above 0 and at most 1000`},
		{"cardinality --victims=1000001", `--victims: 1000001 is not between 1 and 1000000`},
		{"cardinality --budget=7", `--budget: 7 is not between 8 and 65536`},
		{"baseline x", `baseline takes no arguments, but got "x"`},
		{"baseline --settings=x", `--settings: "x" is not one of default, node`},
		{"grpc ip=255.255.255.0 --keys=257", `ip: there are no 257 addresses from 255.255.255.0 on`},
	}
	for _, test := range tests {
		args := append([]string{"bench"}, strings.Fields(test.args)...)
		want := outcome{2, "", "weir: " + test.want + "\nRun \"weir bench " + args[1] + " --help\" for how to use it.\n"}
		if got := weir(t, nil, args...); got != want {
			t.Errorf("weir bench %s:\n got %+v\nwant %+v", test.args, got, want)
		}
	}
}

// TestBenchTarget: without a target the node of the other commands is asked; what cannot be
// asked is told at once.
func TestBenchTarget(t *testing.T) {
	const unreachable = "127.0.0.1:1"
	refused := "weir: no node answers at " + unreachable + ": the connection was refused; start one with \"weir serve\", or name another with --node\n"
	tests := []struct {
		env        []string
		args, want string
	}{
		{nil, "--target " + unreachable, refused},
		{nil, "--node " + unreachable, refused},
		{[]string{"WEIR_NODE=" + unreachable}, "", refused},
		{nil, "--target x", "weir: --target: address \"x\" is not host:port\n"},
		{[]string{"WEIR_NODE=x"}, "", "weir: WEIR_NODE: address \"x\" is not host:port\n"},
	}
	for _, test := range tests {
		got := weir(t, test.env, append([]string{"bench", "grpc"}, strings.Fields(test.args)...)...)
		if want := (outcome{2, "", test.want}); got != want {
			t.Errorf("%s: got %+v, want %+v", test.args, got, want)
		}
	}
}

// TestBenchNode runs a node in this process, and asks it for a moment.
func TestBenchNode(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	const text = "domain: default\nrules:\n  - {id: one, per: [user], limits: [{limit: 1, window: 1d}]}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan node.Info, 1), make(chan error, 1)
	opts := node.Options{GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: t.TempDir(), Rules: rules}
	go func() {
		ended <- node.Run(ctx, opts, slog.New(slog.DiscardHandler), func(i node.Info) { ready <- i })
	}()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	var info node.Info
	select {
	case info = <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal("the node has ended")
	}
	const keys = 5
	for _, flags := range []string{"user=closed", "user=open --rate 500", "user=batch --mode batch --batch 20",
		"user=stream --mode stream --batch 20 --window 3", "user=envoy --mode envoy --batch 1", "--target " + info.GRPC + " user=target --connections 3",
		"user=client --via client", "user=clients --via client --mode batch --batch 20 --connections 2 --rate 2000", "user=leases --via leases"} {
		args := "bench grpc --json --callers 4 --distribution sequential --keys 5 --duration 200ms --node " + info.GRPC + " --server-pid " + strconv.Itoa(os.Getpid()) + " " + flags
		got := weir(t, nil, strings.Fields(args)...)
		var report bench.Report
		err := json.Unmarshal([]byte(got.stdout), &report)
		// On a busy machine the node is late, and refuses checks: the callers are in its process, and wait for nothing.
		refused := report.Failures["ResourceExhausted"]
		if err != nil || (got.code != 0) != (refused > 0) || got.code == 0 && got.stderr != "" {
			t.Fatalf("weir %s: %+v, %v", args, got, err)
		}
		if refused > 0 && report.Checks == 0 {
			continue // all of them
		}
		// One of each user is allowed, if the node got round to all of them.
		if report.NoRule > 0 || report.Allowed < 1 && refused == 0 || report.Allowed > keys || report.Checks != report.Allowed+report.Denied || report.Errors != refused {
			t.Errorf("weir %s: %+v", args, report.Counts)
		}
		if p := report.Latency; p.P50 <= 0 || p.P50 > p.P90 || p.P90 > p.P99 || p.P99 > p.P999 || p.P999 > p.Max {
			t.Errorf("weir %s: latency %+v", args, p)
		}
		if len(report.Servers) != 1 || report.Servers[0].RSS < 1<<20 || report.ClientCPU <= 0 || report.ChecksPerSecond <= 0 || report.KeysAsked < 1 || report.KeysAsked > keys {
			t.Errorf("weir %s: %+v", args, report)
		}
		if (report.Client != nil) != (report.Via != "") || report.Client != nil && (report.Client.Nodes != 1 || report.Client.Answered == 0) {
			t.Errorf("weir %s: via %q, %+v", args, report.Via, report.Client)
		}
	}
	for _, mode := range []string{bench.Unary, bench.Envoy} {
		got := weir(t, nil, "bench", "grpc", "team=any", "--duration=50ms", "--callers=1", "--node="+info.GRPC, "--mode="+mode)
		refused := strings.Contains(got.stdout, "no answer: ResourceExhausted ") // as above
		if (got.code != 0) != refused || !refused && !strings.Contains(got.stdout, " checks matched no rule") {
			t.Errorf("%s, no rule: %+v", mode, got)
		}
	}
}

// peekOnly answers callers that only look.
type peekOnly struct {
	weirv1.UnimplementedRateLimiterServer
}

func (peekOnly) CheckRateLimit(_ context.Context, request *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	if request.GetPeek() {
		return allowedAnswer, nil
	}
	return nil, status.Error(codes.Internal, "boom")
}

// TestBenchErrors: checks without an answer are counted by what was wrong, and make the
// exit code 1.
func TestBenchErrors(t *testing.T) {
	address := listenWith(t, func(s *grpc.Server) { weirv1.RegisterRateLimiterServer(s, peekOnly{}) })
	got := weir(t, nil, "bench", "grpc", "--node", address, "--connections=1", "--duration=50ms", "--callers=2", "--progress")
	if got.code != 1 || !strings.Contains(got.stdout, "\nno answer: Internal ") {
		t.Errorf("got %+v", got)
	}
}

// busy is too busy to accept any check.
type busy struct {
	weirv1.UnimplementedRateLimiterServer
}

func (busy) CheckRateLimit(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return nil, status.Error(codes.ResourceExhausted, "overloaded")
}

// TestBenchBusyNode: a node that is too busy when the load begins is put under it nevertheless.
func TestBenchBusyNode(t *testing.T) {
	address := listenWith(t, func(s *grpc.Server) { weirv1.RegisterRateLimiterServer(s, busy{}) })
	got := weir(t, nil, "bench", "grpc", "--node", address, "--connections=1", "--duration=50ms", "--callers=2")
	if got.code != 1 || !strings.Contains(got.stdout, "\nno answer: ResourceExhausted ") {
		t.Errorf("got %+v", got)
	}
}

func TestFormatReport(t *testing.T) {
	percentiles := bench.Percentiles{P50: 97.31, P90: 812.4, P99: 1234.5678, P999: 250_123.4, Max: 1_204_567.8}
	report := bench.Report{
		Mode: "unary", Callers: 64, Connections: 2, Keys: 1000, Distribution: "zipf", Seconds: 10.04,
		Counts:          bench.Counts{Checks: 200_000, Allowed: 150_000, Denied: 50_000, FailOpen: 7},
		ChecksPerSecond: 19_920.3, Latency: percentiles, ClientCPU: 21.345,
	}
	want := `closed loop, unary, 64 callers, 2 connections, 1000 keys (zipf), 10.0s

CHECKS  ALLOWED  DENIED  FAIL_OPEN  ERRORS  CHECKS/S
200000  150000   50000   7          0       19920

TIME               P50     P90      P99      P99.9      MAX
latency of a call  97.3µs  812.4µs  1.235ms  250.123ms  1.205s

PROCESS  CPU/CHECK  MEMORY  GROWN BY
client   21.34µs    -       -
`
	if got := formatReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	report.Mode, report.Batch, report.Window = "stream", 100, 8
	report.Rate, report.SendDelay, report.Unsent = 5000, &bench.Percentiles{}, 300
	report.NoRule = 40
	report.Errors, report.Failures = 5, map[string]int64{"Unavailable": 3, "DeadlineExceeded": 2}
	report.Servers = []bench.Usage{{PID: 42, CPU: 9.1, RSS: 50 << 20, Grown: 9 << 20}, {PID: 43, Gone: true}}
	report.Via, report.Timed, report.KeysAsked, report.Bytes = bench.Leases, 16, 1000, 51.23
	report.Client = &bench.ClientReport{Nodes: 3, Answered: 800, Retried: 1, Lent: 70, LentUsed: 60, GivenBack: 10}
	report.CompareTo(bench.Report{ChecksPerSecond: 40_000.4, Latency: bench.Percentiles{P50: 50, P99: 700}, Servers: []bench.Usage{{CPU: 4.55}}})
	want = `open loop of 5000 checks/s, stream of 100, 8 under way per stream via leases, 64 callers, 2 connections, 1000 keys (zipf), 10.0s

CHECKS  ALLOWED  DENIED  FAIL_OPEN  ERRORS  CHECKS/S
200000  150000   50000   7          5       19920

TIME                         P50     P90      P99      P99.9      MAX
latency of a call (1 of 16)  97.3µs  812.4µs  1.235ms  250.123ms  1.205s
of it, before it was sent    0s      0s       0s       0s         0s

PROCESS   CPU/CHECK  MEMORY   GROWN BY
client    21.34µs    -        -
42        9.10µs     50.0MiB  9.0MiB
43        has ended  -        -
baseline  4.55µs     0.0MiB   0.0MiB

memory: the servers have grown by 51.2B per key, of 1000 that were asked about

client: 800 calls were answered by nodes (connected: 3), 1 of them by the second
leases: 70 tokens lent, 60 used, 10 given back

baseline: 40000 checks/s, p50 50µs, p99 700µs; a check costs the servers 2.00 times the baseline

40 checks matched no rule, so that nothing was counted for them

300 checks were not sent in time, as all callers were waiting: the rate is more than 64 callers and the servers can do

no answer: DeadlineExceeded 2, Unavailable 3
`
	if got := formatReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBenchEngine(t *testing.T) {
	got := weir(t, nil, strings.Fields("bench engine --grow --json --keys 100 --duration 20ms --algorithm gcra --limit 1 --batch 3")...)
	var report bench.EngineReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	// The only token of each key has gone to make its counter.
	if report.Growth == nil || report.Algorithm != "gcra" || report.Counters != 100 || report.Denied == 0 || report.Denied != report.Checks || report.Checks%3 != 0 {
		t.Errorf("got %+v", report)
	}
	if got := weir(t, nil, "bench", "engine", "--limit=-1"); got.code != 2 || !strings.HasPrefix(got.stderr, "weir: --limit: -1 ") {
		t.Errorf("a limit of -1: %+v", got)
	}
}

func TestFormatEngineReport(t *testing.T) {
	report := bench.EngineReport{
		Algorithm: "gcra", Goroutines: 2, Batch: 1, Keys: 1000, Distribution: "uniform", Counters: 999, Seconds: 10.01,
		Checks: 50_000_000, Allowed: 30_000_000, Denied: 20_000_000, ChecksPerSecond: 5_000_000.4,
		Nanoseconds: 400.04, CPU: 380.26, Allocations: 0.0004, Bytes: 44.25,
	}
	want := `gcra, 2 goroutines, batches of 1, 1000 keys (uniform), 999 counters, 10.0s

CHECKS    ALLOWED   DENIED    CHECKS/S  TIME/CHECK  CPU/CHECK  ALLOCS/CHECK  MEMORY/KEY
50000000  30000000  20000000  5000000   400.0ns     380.3ns    0.000         44.2B
`
	if got := formatEngineReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	report.Growth = &bench.Growth{Seconds: 2.04, Checks: 5, Latency: bench.Percentiles{P50: 0.3, Max: 700}, Idle: bench.Percentiles{Max: 600}, CPU: &bench.Percentiles{P50: 0.5, Max: 90}}
	want += `
5 checks while the counters were made, 2.0s

TIME                        P50    P90  P99  P99.9  MAX
of a check                  300ns  0s   0s   0s     700µs
of nothing instead          0s     0s   0s   0s     600µs
of a check, on a processor  500ns  0s   0s   0s     90µs
`
	if got := formatEngineReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestBenchExpiry: what does not come back in time is exit code 1, and 0 if it does. So few counters may
// go unnoticed in the memory of a process: then they are back at once.
func TestBenchExpiry(t *testing.T) {
	for flags, within := range map[string]float64{"--within 1000": 1000, "--within 0.000001": 0.000001} {
		got := weir(t, nil, strings.Fields("bench expiry --json --keys 100 --window 10ms --patience 300ms "+flags)...)
		var report bench.ExpiryReport
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.stderr != "" {
			t.Fatalf("%s: %+v, %v", flags, got, err)
		}
		code := 1
		if float64(report.After) <= float64(report.Idle)*(1+within) {
			code = 0
		}
		if got.code != code || within == 1000 && code != 0 || report.Keys != 100 || report.Back != (code == 0) || report.Idle == 0 || report.Full == 0 || report.Checks.Checks == 0 {
			t.Errorf("%s: %+v", flags, report)
		}
	}
}

// TestBenchCardinality: keys that have used half of their limit survive, unless there is room
// for nothing. Each has a process of its own: what this one had in memory before, and unmaps meanwhile, would be missing
// in the peak.
func TestBenchCardinality(t *testing.T) {
	for victims, code := range map[string]int{"10": 0, "300000": 1} {
		got := weirProcess(t, strings.Fields("bench cardinality --json --keys 400000 --budget 8 --victims "+victims)...)
		var report bench.CardinalityReport
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != code || got.stderr != "" {
			t.Fatalf("%s victims: %+v, %v", victims, got, err)
		}
		if (report.Forgotten > 0) != (code == 1) || (report.Evicted > 0) != (code == 0) || report.Counters < 150_000 || report.Counters > 262_144 || report.Peak == 0 {
			t.Errorf("%s victims: %+v", victims, report)
		}
	}
}

func TestFormatMemoryReports(t *testing.T) {
	expiry := bench.ExpiryReport{Keys: 10, Idle: 10 << 20, Full: 20 << 20, After: 11 << 20, XIdle: 1.1, FillSeconds: 2, BackSeconds: 3, Back: true, Counters: 4, Checks: &bench.Growth{Checks: 9}}
	want := `10 keys, made in 2.0s; the memory is back after 3.0s

IDLE     FULL     AFTER    AFTER/IDLE  COUNTERS
10.0MiB  20.0MiB  11.0MiB  1.10        4

9 checks went on

TIME                P50  P90  P99  P99.9  MAX
of a check          0s   0s   0s   0s     0s
of nothing instead  0s   0s   0s   0s     0s
`
	if got := formatExpiryReport(expiry); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	report := bench.CardinalityReport{Keys: 10, Victims: 5, Budget: 64 << 20, Peak: 70 << 20, XBudget: 1.09, Counters: 7, Evicted: 3, Forgotten: 1, Seconds: 2}
	want = `10 fresh keys, a budget of 64.0MiB, 5 keys at half of their limit, 2.0s

MEMORY   MEMORY/BUDGET  COUNTERS  EVICTED  FORGOTTEN
70.0MiB  1.09           7         3        1
`
	if got := formatCardinalityReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
