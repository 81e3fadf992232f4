package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirlimit/weir/node"
)

// serve runs weir serve with run in the place of node.Run.
func serve(run func(context.Context, node.Options, *slog.Logger, func(node.Info)) error, env []string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	a := newApp(env, &stdout, &stderr)
	a.runNode = run
	code := a.run(append([]string{"serve"}, args...))
	return outcome{code, stdout.String(), stderr.String()}
}

func TestServe(t *testing.T) {
	var opts node.Options
	run := func(_ context.Context, o node.Options, log *slog.Logger, ready func(node.Info)) error {
		opts = o
		log.Info("not logged")
		ready(node.Info{ID: o.ID, GRPC: o.GRPC, HTTP: o.HTTP, Etcd: "etcd-1:2379", Rules: 3})
		return nil
	}
	got := serve(run, []string{"WEIR_ID=a"}, "--grpc=127.0.0.1:9091", "--etcd=etcd-1:2379", "--insecure", "--log-level=warn")
	want := outcome{0, "weir node a serves gRPC on 127.0.0.1:9091 and HTTP on 127.0.0.1:8080 (3 rules, etcd at etcd-1:2379); " +
		"try: weir check --node 127.0.0.1:9091 user=alice endpoint=/api/v1/posts\n", ""}
	if got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	wantOpts := node.Options{
		ID: "a", GRPC: "127.0.0.1:9091", Etcd: []string{"etcd-1:2379"}, Insecure: true, LogLevel: "warn",
	}.WithDefaults()
	if !reflect.DeepEqual(opts, wantOpts) {
		t.Errorf("\n got %+v\nwant %+v", opts, wantOpts)
	}
}

func TestServeFails(t *testing.T) {
	run := func(context.Context, node.Options, *slog.Logger, func(node.Info)) error {
		return errors.New("listen on 127.0.0.1:9090: address already in use")
	}
	want := outcome{1, "", "weir: listen on 127.0.0.1:9090: address already in use\n"}
	if got := serve(run, nil); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// A node that ends as if canceled, but without a signal, has failed.
	run = func(context.Context, node.Options, *slog.Logger, func(node.Info)) error { return context.Canceled }
	if got := serve(run, nil); got.code != 1 {
		t.Errorf("got %+v", got)
	}
	want = outcome{1, "", "weir: WEIR_LOG_LEVEL: \"loud\" is not one of debug, info, warn, error\n"}
	if got := serve(nil, []string{"WEIR_LOG_LEVEL=loud"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestServeWarnsOfUnknownVariables(t *testing.T) {
	run := func(context.Context, node.Options, *slog.Logger, func(node.Info)) error { return nil }
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

func TestReadyLine(t *testing.T) {
	tests := []struct {
		info node.Info
		want string
	}{
		{
			node.Info{ID: "host-9090", GRPC: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", Etcd: "127.0.0.1:2379", EmbeddedEtcd: true, Rules: 3},
			"weir node host-9090 serves gRPC on 127.0.0.1:9090 and HTTP on 127.0.0.1:8080 " +
				"(3 rules, embedded etcd on 127.0.0.1:2379); try: weir check user=alice endpoint=/api/v1/posts",
		}, {
			node.Info{ID: "a", GRPC: "[::]:9090", HTTP: "[::]:80", Etcd: "e-1:2379,e-2:2379", Rules: 1},
			"weir node a serves gRPC on [::]:9090 and HTTP on [::]:80 " +
				"(1 rule, etcd at e-1:2379,e-2:2379); try: weir check user=alice endpoint=/api/v1/posts",
		}, {
			node.Info{ID: "a", GRPC: "10.0.0.1:1", HTTP: "10.0.0.1:2", Etcd: "e-1:2379"},
			"weir node a serves gRPC on 10.0.0.1:1 and HTTP on 10.0.0.1:2 " +
				"(no rules: everything is allowed; add some with: weir rules apply -f FILE --node 10.0.0.1:1, etcd at e-1:2379); try: weir check --node 10.0.0.1:1 user=alice endpoint=/api/v1/posts",
		}, {
			node.Info{ID: "a", GRPC: "127.0.0.1:9090", HTTP: "127.0.0.1:8080", Etcd: "e-1:2379", RulesPath: "none.yaml"},
			"weir node a serves gRPC on 127.0.0.1:9090 and HTTP on 127.0.0.1:8080 " +
				"(no rules: everything is allowed, etcd at e-1:2379); try: weir check user=alice endpoint=/api/v1/posts",
		}, {
			node.Info{ID: "a", GRPC: "[::]:8081", HTTP: "[::]:8080", Etcd: "e-1:2379", Rules: 2, RulesPath: "config", Descriptors: true},
			"weir node a serves gRPC on [::]:8081 and HTTP on [::]:8080 (2 rules, etcd at e-1:2379); try: curl 127.0.0.1:8080/rlconfig",
		},
	}
	for _, test := range tests {
		if got := readyLine(test.info); got != test.want {
			t.Errorf("\n got %s\nwant %s", got, test.want)
		}
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
