//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/node"
)

// kill sends this process a signal, for which the caller must have asked.
func kill(t *testing.T, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), signal); err != nil {
		t.Fatal(err)
	}
}

func TestServeStopsOnSignal(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		for _, result := range []error{nil, context.Canceled} {
			run := func(ctx context.Context, _ node.Network, _ node.Options, _ *slog.Logger, _ func(node.Info)) error {
				kill(t, signal)
				<-ctx.Done()
				return result
			}
			got := serve(run, nil)
			if got.code != 0 || !strings.Contains(got.stderr, `"msg":"stopping","signal":"`+signal.String()+`"`) {
				t.Errorf("%v, %v: got %+v", signal, result, got)
			}
		}
	}
	run := func(ctx context.Context, _ node.Network, _ node.Options, _ *slog.Logger, _ func(node.Info)) error {
		kill(t, syscall.SIGTERM)
		<-ctx.Done()
		return errors.New("a stream did not end")
	}
	if got := serve(run, nil); got.code != 1 || !strings.HasSuffix(got.stderr, `"msg":"the node has failed","error":"a stream did not end"}`+"\n") {
		t.Errorf("a stop that fails: got %+v", got)
	}
}

func TestServeEndsOnSecondSignal(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143} {
		var stdout, stderr bytes.Buffer
		a := newApp(nil, &stdout, &stderr)
		exited := make(chan int, 1)
		a.exit = func(code int) { exited <- code }
		a.runNode = func(ctx context.Context, _ node.Network, _ node.Options, _ *slog.Logger, _ func(node.Info)) error {
			kill(t, syscall.SIGTERM)
			<-ctx.Done()
			kill(t, syscall.SIGTERM) // comes with the first, and ends nothing
			<-time.After(sameSignal)
			select {
			case code := <-exited:
				t.Errorf("ended with %d by a signal that came with the first", code)
			default:
			}
			kill(t, signal) // the node hangs
			if code := <-exited; code != want {
				t.Errorf("second %v: exit code %d, want %d", signal, code, want)
			}
			return nil
		}
		a.run([]string{"serve"})
	}
}
