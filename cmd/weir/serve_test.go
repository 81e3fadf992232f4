package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir/node"
	"github.com/weirlimit/weir/rules"
)

// serve runs weir serve with run in the place of node.Run.
func serve(run func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	a := newApp(env, &stdout, &stderr)
	a.runNode = run
	code := a.run(append([]string{"serve"}, args...))
	return outcome{code, stdout.String(), stderr.String()}
}

func TestServe(t *testing.T) {
	var opts node.Options
	run := func(_ context.Context, _ node.Network, o node.Options, log *slog.Logger, ready func(node.Info)) error {
		opts = o
		log.Info("not logged")
		ready(node.Info{ID: o.ID, GRPC: o.GRPC, HTTP: o.HTTP, Etcd: "etcd-1:2379", Rules: 3})
		return nil
	}
	got := serve(run, []string{"WEIR_ID=a"}, "--grpc=127.0.0.1:9091", "--etcd=etcd-1:2379", "--insecure", "--log-level=warn")
	const want = `"level":"INFO","msg":"ready","id":"a","grpc":"127.0.0.1:9091","http":"127.0.0.1:8080","rules":3,"etcd":"etcd-1:2379","embedded_etcd":false,` +
		`"try":"weir check --node 127.0.0.1:9091 user=alice endpoint=/api/v1/posts"}` + "\n"
	if got.code != 0 || got.stdout != "" || !strings.HasSuffix(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("\n got %+v\nwant %s", got, want)
	}
	wantOpts := node.Options{
		ID: "a", GRPC: "127.0.0.1:9091", Etcd: []string{"etcd-1:2379"}, Insecure: true, LogLevel: "warn",
	}.WithDefaults()
	if !reflect.DeepEqual(opts, wantOpts) {
		t.Errorf("\n got %+v\nwant %+v", opts, wantOpts)
	}
}

func TestServeFails(t *testing.T) {
	run := func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error {
		return errors.New("listen on 127.0.0.1:9090: address already in use")
	}
	const failed = `"level":"ERROR","msg":"the node has failed","error":"listen on 127.0.0.1:9090: address already in use"}` + "\n"
	if got := serve(run, nil); got.code != 1 || got.stdout != "" || !strings.HasSuffix(got.stderr, failed) || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("got %+v, want %s", got, failed)
	}
	// A node that ends as if canceled, but without a signal, has failed.
	run = func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error {
		return context.Canceled
	}
	if got := serve(run, nil); got.code != 1 {
		t.Errorf("got %+v", got)
	}
	// What is wrong with a value that only shows when the node starts is a bad value, too.
	for _, bad := range []error{
		fmt.Errorf("start: %w", &node.OptionError{Name: "id", Problem: "is taken"}),
		&rules.LoadError{Problems: []rules.Problem{{File: "r.yaml", Message: "is bad"}}},
	} {
		run = func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error { return bad }
		if got := serve(run, nil, "--rules=r.yaml"); got.code != 2 {
			t.Errorf("%v: got %+v", bad, got)
		}
	}
	if got := serve(run, nil); got.code != 1 { // the rules are those of the cluster
		t.Errorf("got %+v", got)
	}
	want := outcome{2, "", "weir: WEIR_LOG_LEVEL: \"loud\" is not one of debug, info, warn, error\n"}
	if got := serve(nil, []string{"WEIR_LOG_LEVEL=loud"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestServeWarnsOfUnknownVariables(t *testing.T) {
	run := func(context.Context, node.Network, node.Options, *slog.Logger, func(node.Info)) error { return nil }
	got := serve(run, []string{"WEIR_ETC=x", "WEIR_GPRC=x", "WEIR_SERVICE_HOST=10.0.0.1"})
	var line struct{ Level, Msg, Variables string }
	if err := json.Unmarshal([]byte(got.stderr), &line); err != nil {
		t.Fatalf("%v: %s", err, got.stderr)
	}
	if got.code != 0 || line.Level != "WARN" || line.Msg != "ignoring unknown environment variables" ||
		line.Variables != "WEIR_ETC; did you mean WEIR_ETCD?, WEIR_GPRC; did you mean WEIR_GRPC?" {
		t.Errorf("got %+v", got)
	}
}

func TestReady(t *testing.T) {
	tests := []struct {
		info node.Info
		try  string
	}{
		{node.Info{GRPC: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", Rules: 3}, "weir check user=alice endpoint=/api/v1/posts"},
		{node.Info{GRPC: "[::]:9090", HTTP: "[::]:80", Rules: 1}, "weir check user=alice endpoint=/api/v1/posts"},
		{node.Info{GRPC: "10.0.0.1:1", HTTP: "10.0.0.1:2"}, "weir rules apply -f FILE --node 10.0.0.1:1 (without rules everything is allowed)"},
		{node.Info{GRPC: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", RulesPath: "none.yaml"}, "weir check user=alice endpoint=/api/v1/posts"},
		{node.Info{GRPC: "[::]:8081", HTTP: "[::]:8080", Rules: 2, RulesPath: "config", Descriptors: true}, "curl 127.0.0.1:8080/rlconfig"},
	}
	for _, test := range tests {
		var out bytes.Buffer
		logReady(newLogger(&out, "error"), test.info)
		var line struct {
			Msg, Try string
			Rules    int
		}
		if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Msg != "ready" || line.Try != test.try || line.Rules != test.info.Rules {
			t.Errorf("\n got %s %v\nwant %s", out.String(), err, test.try)
		}
	}
}

// TestGRPCLog: what gRPC says comes in the form and at the levels of the log.
func TestGRPCLog(t *testing.T) {
	var out bytes.Buffer
	l := grpcLog{newLogger(&out, "info").With("component", "grpc")}
	l.Info("a", 1)
	l.Warningf("b %d", 2)
	if out.Len() > 0 {
		t.Errorf("logged %s", out.String())
	}
	l.Errorln("c", 3)
	if want := `"level":"WARN","msg":"c 3","component":"grpc"}` + "\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}

// TestLogFormat: text on a terminal and JSON otherwise.
func TestLogFormat(t *testing.T) {
	var out bytes.Buffer
	newLogger(&out, "info").Info("hello")
	if !strings.HasPrefix(out.String(), "{") {
		t.Errorf("to a buffer: %s", out.String())
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if isTerminal(file) || !isTerminal(device) {
		t.Errorf("a file is a terminal: %v, a device is: %v", isTerminal(file), isTerminal(device))
	}
	for level, want := range map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError} {
		log := newLogger(&out, level)
		if !log.Enabled(t.Context(), want) || log.Enabled(t.Context(), want-1) {
			t.Errorf("level %s is not %v", level, want)
		}
	}
}
