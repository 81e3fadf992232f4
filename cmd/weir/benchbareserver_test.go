//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlimit/weir/cmd/weir/internal/bench"
)

// TestBenchBaseline asks both baselines for a moment, and stops them by a signal.
func TestBenchBaseline(t *testing.T) {
	for _, settings := range []string{settingsDefault, settingsNode} {
		stdout, w := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			code := newApp(nil, w, io.Discard).run([]string{"bench", "baseline", "--settings", settings})
			_ = w.Close()
			ended <- code
		}()
		line := make([]byte, 1024)
		n, err := stdout.Read(line)
		m := baselineLine.FindStringSubmatch(string(line[:n]))
		if err != nil || m == nil {
			t.Fatalf("%s: got %q, %v", settings, line[:n], err)
		}
		for _, mode := range bench.Modes() {
			got := weir(t, nil, "bench", "grpc", "--mode", mode, "--target", m[1], "--duration", "50ms", "--callers", "2")
			if got.code != 0 || !strings.Contains(got.stdout, "closed loop") {
				t.Errorf("%s, %s: %+v", settings, mode, got)
			}
		}
		if got := weir(t, nil, "bench", "grpc", "--via", bench.Client, "--target", m[1], "--duration", "50ms"); got.code != 0 || !strings.Contains(got.stdout, "(connected: 1)") {
			t.Errorf("%s, through the client: %+v", settings, got)
		}
		kill(t, syscall.SIGTERM)
		if code := <-ended; code != 0 {
			t.Errorf("%s: stopped with exit code %d", settings, code)
		}
	}
}

// TestBenchComparedWithBaseline asks a bare server, and then another bare server, which must cost
// about the same: the ratio is of the two.
func TestBenchComparedWithBaseline(t *testing.T) {
	t.Setenv(runVariable, "1")
	asked, err := startBaseline(settingsNode)
	if err != nil {
		t.Fatal(err)
	}
	defer asked.stop()
	args := fmt.Sprintf("bench grpc --json --mode batch --duration 300ms --callers 4 --target %s --server-pid %d --baseline default", asked.address, asked.pid)
	got := weir(t, nil, strings.Fields(args)...)
	var report bench.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	if report.Baseline == nil || report.Baseline.Checks == 0 || len(report.Baseline.Servers) != 1 || report.Baseline.Servers[0].PID == asked.pid {
		t.Fatalf("baseline %+v", report.Baseline)
	}
	if want := report.Servers[0].CPU / report.Baseline.Servers[0].CPU; report.XBaseline != want || want == 0 {
		t.Errorf("x baseline %v, want %v", report.XBaseline, want)
	}
}

// A baseline with TLS is asked with TLS, and one whose certificate cannot be read does not start.
func TestBenchBaselineWithTLS(t *testing.T) {
	dir := t.TempDir() + "/certs"
	if got := weir(t, nil, "certs", "init", "--dir", dir, "--node", "a", "--host", "127.0.0.1"); got.code != 0 {
		t.Fatalf("%+v", got)
	}
	if got := weir(t, nil, "bench", "baseline", "--tls-cert", dir+"/none.crt", "--tls-key", dir+"/node-a.key"); got.code == 0 || !strings.Contains(got.stderr, "none.crt") {
		t.Errorf("without the file of the certificate: %+v", got)
	}
	stdout, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		code := newApp(nil, w, io.Discard).run([]string{"bench", "baseline", "--tls-cert", dir + "/node-a.crt", "--tls-key", dir + "/node-a.key"})
		_ = w.Close()
		ended <- code
	}()
	line := make([]byte, 1024)
	n, err := stdout.Read(line)
	m := baselineLine.FindStringSubmatch(string(line[:n]))
	if err != nil || m == nil {
		t.Fatalf("%q, %v", line[:n], err)
	}
	ask := []string{"bench", "grpc", "--target", m[1], "--duration", "50ms", "--callers", "2"}
	if got := weir(t, nil, append(ask, "--tls-ca", dir+"/ca.crt")...); got.code != 0 {
		t.Errorf("with TLS: %+v", got)
	}
	if got := weir(t, nil, ask...); got.code == 0 {
		t.Errorf("without TLS: %+v", got)
	}
	kill(t, syscall.SIGTERM)
	if code := <-ended; code != 0 {
		t.Errorf("stopped with exit code %d", code)
	}
}
