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
		{"grpc --mode=stream", `--mode: "stream" is not one of unary, batch`},
		{"grpc --batch=10", `--batch: only --mode batch has batches`},
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
		{"floor x", `floor takes no arguments, but got "x"`},
		{"floor --settings=x", `--settings: "x" is not one of default, node`},
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
	const nobody = "127.0.0.1:1"
	refused := "weir: no node answers at " + nobody + ": the connection was refused; start one with \"weir serve\", or name another with --node\n"
	tests := []struct {
		env        []string
		args, want string
	}{
		{nil, "--target " + nobody, refused},
		{nil, "--node " + nobody, refused},
		{[]string{"WEIR_NODE=" + nobody}, "", refused},
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
	for _, flags := range []string{"user=closed", "user=open --rate 500", "user=batch --mode batch --batch 20", "--target " + info.GRPC + " user=target --connections 3"} {
		args := "bench grpc --json --callers 4 --distribution sequential --keys 5 --duration 200ms --node " + info.GRPC + " --server-pid " + strconv.Itoa(os.Getpid()) + " " + flags
		got := weir(t, nil, strings.Fields(args)...)
		var report bench.Report
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 || got.stderr != "" {
			t.Fatalf("weir %s: %+v, %v", args, got, err)
		}
		// One of each user is allowed, if the node got round to all of them.
		if report.Allowed < 1 || report.Allowed > keys || report.Checks != report.Allowed+report.Denied || report.Errors != 0 {
			t.Errorf("weir %s: %+v", args, report.Counts)
		}
		if p := report.Latency; p.P50 <= 0 || p.P50 > p.P90 || p.P90 > p.P99 || p.P99 > p.P999 || p.P999 > p.Max {
			t.Errorf("weir %s: latency %+v", args, p)
		}
		if len(report.Servers) != 1 || report.Servers[0].RSS < 1<<20 || report.ClientCPU <= 0 || report.ChecksPerSecond <= 0 {
			t.Errorf("weir %s: %+v", args, report)
		}
	}
}

// peekOnly answers who only looks.
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

func TestFormatReport(t *testing.T) {
	percentiles := bench.Percentiles{P50: 97.31, P90: 812.4, P99: 1234.5678, P999: 250_123.4, Max: 1_204_567.8}
	report := bench.Report{
		Callers: 64, Connections: 2, Keys: 1000, Distribution: "zipf", Seconds: 10.04,
		Counts:          bench.Counts{Checks: 200_000, Allowed: 150_000, Denied: 50_000, FailOpen: 7},
		ChecksPerSecond: 19_920.3, Latency: percentiles, ClientCPU: 21.345,
	}
	want := `closed loop, unary, 64 callers, 2 connections, 1000 keys (zipf), 10.0s

CHECKS  ALLOWED  DENIED  FAIL_OPEN  ERRORS  CHECKS/S
200000  150000   50000   7          0       19920

TIME               P50     P90      P99      P99.9      MAX
latency of a call  97.3µs  812.4µs  1.235ms  250.123ms  1.205s

PROCESS  CPU/CHECK  MEMORY
client   21.34µs    -
`
	if got := formatReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	report.Batch, report.Rate, report.SendDelay, report.Unsent = 100, 5000, &bench.Percentiles{}, 300
	report.Errors, report.Failures = 5, map[string]int64{"Unavailable": 3, "DeadlineExceeded": 2}
	report.Servers = []bench.Usage{{PID: 42, CPU: 9.1, RSS: 50 << 20}, {PID: 43, Gone: true}}
	want = `open loop of 5000 checks/s, batches of 100, 64 callers, 2 connections, 1000 keys (zipf), 10.0s

CHECKS  ALLOWED  DENIED  FAIL_OPEN  ERRORS  CHECKS/S
200000  150000   50000   7          5       19920

TIME                 P50     P90      P99      P99.9      MAX
latency of a call    97.3µs  812.4µs  1.235ms  250.123ms  1.205s
of it, not yet sent  0s      0s       0s       0s         0s

PROCESS  CPU/CHECK  MEMORY
client   21.34µs    -
42       9.10µs     50.0MiB
43       has ended  -

300 checks were not sent in time, as all callers were waiting: the rate is more than 64 callers and the servers can do

no answer: DeadlineExceeded 2, Unavailable 3
`
	if got := formatReport(report); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestBenchEngine(t *testing.T) {
	got := weir(t, nil, strings.Fields("bench engine --json --keys 100 --duration 20ms --algorithm gcra --limit 1 --batch 3")...)
	var report bench.EngineReport
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	// The only token of each key has gone to make its counter.
	if report.Algorithm != "gcra" || report.Counters != 100 || report.Denied == 0 || report.Denied != report.Checks || report.Checks%3 != 0 {
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
}
