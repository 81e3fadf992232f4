package client_test

// This is the harness of the tests, benchmarks and examples that need a real node: node.Run in this process, on free ports of
// loopback, in real time. Tests of what a client does about failures use newNetwork (fakenetwork_test.go) instead, in a
// bubble.
//
//	info := startNode(t, "a", rules)             // a cluster of one, with an embedded etcd
//	startNode(t, "b", rules, info.Etcd)          // joins it
//	c, err := client.New(info.GRPC)
//
// Nodes are stopped when the test ends, which fails if a node has not ended without an error. Their files are in a directory of
// the test. An example, which has no testing.TB, calls runNode, and stop itself.

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/node"
)

// runNode runs a real node in this process, on loopback, with these rules and its data
// in dir, until stop. It joins those of an etcd, if one is given.
func runNode(dir, rules string, etcd ...string) (_ node.Info, stop func() error, err error) {
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		return node.Info{}, nil, err
	}
	opts := node.Options{
		ID: filepath.Base(dir), GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: dir, Etcd: etcd, Rules: file,
		PeerTimeout: 4 * time.Second, // what counts is that all counts, not how fast
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan node.Info, 1), make(chan error, 1)
	go func() { ended <- node.Run(ctx, opts, slog.New(slog.DiscardHandler), func(i node.Info) { ready <- i }) }()
	stop = func() error {
		cancel()
		return <-ended
	}
	select {
	case info := <-ready:
		return info, stop, nil
	case err := <-ended:
		cancel()
		return node.Info{}, nil, err
	}
}

// startNode is runNode until the test ends.
func startNode(t testing.TB, id, rules string, etcd ...string) node.Info {
	t.Helper()
	dir := filepath.Join(t.TempDir(), id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info, stop, err := runNode(dir, rules, etcd...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return info
}
