//go:build unix

package main

import (
	"io"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var floorLine = regexp.MustCompile(`^weir floor serves gRPC on (\S+) \(pid \d+\); try: weir bench grpc --target (\S+) --server-pid \d+$`)

// TestBenchFloor asks both floors for a moment, and stops them by a signal.
func TestBenchFloor(t *testing.T) {
	for _, settings := range []string{settingsDefault, settingsNode} {
		stdout, w := io.Pipe()
		ended := make(chan int, 1)
		go func() {
			code := newApp(nil, w, io.Discard).run([]string{"bench", "floor", "--settings", settings})
			_ = w.Close()
			ended <- code
		}()
		line := make([]byte, 1024)
		n, err := stdout.Read(line)
		m := floorLine.FindStringSubmatch(strings.TrimSuffix(string(line[:n]), "\n"))
		if err != nil || m == nil {
			t.Fatalf("%s: got %q, %v", settings, line[:n], err)
		}
		for _, mode := range []string{modeUnary, modeBatch} {
			got := weir(t, nil, "bench", "grpc", "--mode", mode, "--target", m[2], "--duration", "50ms", "--callers", "2")
			if got.code != 0 || !strings.Contains(got.stdout, "closed loop") {
				t.Errorf("%s, %s: %+v", settings, mode, got)
			}
		}
		kill(t, syscall.SIGTERM)
		if code := <-ended; code != 0 {
			t.Errorf("%s: stopped with exit code %d", settings, code)
		}
	}
}
