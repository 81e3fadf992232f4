package main

// The tests of this package run command lines:
//
//	got := weir(t, env, "rules", "lint", "-f", file) // in this process; it must not start a node
//	got := weirProcess(t, "rules", "lint", "-f", file) // in a process of its own: this test program, with runVariable set
//
// They take real time, as processes and ports do.

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirlimit/weir/node"
)

func TestMain(m *testing.M) {
	if os.Getenv(runVariable) != "" {
		os.Exit(newApp(os.Environ(), os.Stdout, os.Stderr).run(os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// outcome is what a command line led to.
type outcome struct {
	code           int
	stdout, stderr string
}

// weir runs a command line in this process, with a node that must not be run.
func weir(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	return weirWith(t, "", env, args...)
}

// weirWith is weir with something to read on standard input.
func weirWith(t *testing.T, stdin string, env []string, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := newApp(env, &stdout, &stderr)
	a.stdin = strings.NewReader(stdin)
	a.runNode = func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error {
		t.Errorf("weir %s has started a node", strings.Join(args, " "))
		return nil
	}
	code := a.run(args)
	return outcome{code, stdout.String(), stderr.String()}
}

// weirProcess runs a command line in a process of its own.
func weirProcess(t *testing.T, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), runVariable+"=1"), &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
