package node

import (
	"context"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/ring"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs a node until stop, and returns when it is ready.
func start(t *testing.T, opts Options) (_ Info, stop func(), ended <-chan error) {
	t.Helper()
	return startOn(t, Network{}, opts)
}

// startOn is start on another network than TCP.
func startOn(t *testing.T, network Network, opts Options) (_ Info, stop func(), ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done, ready, gone := make(chan error, 1), make(chan Info, 1), make(chan struct{})
	go func() {
		defer close(gone)
		done <- RunOn(ctx, network, opts, quiet(), func(i Info) { ready <- i })
	}()
	t.Cleanup(func() {
		cancel()
		<-gone
	})
	select {
	case info := <-ready:
		return info, cancel, done
	case err := <-done:
		t.Fatal(err)
		return Info{}, nil, nil
	}
}

// dial returns a connection to a node that lasts until the test ends.
func dial(t *testing.T, info Info) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(info.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // nothing is under way
	return conn
}

// setView makes n route by a view of these members.
func setView(t *testing.T, n *node, members ...cluster.Member) {
	t.Helper()
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.ID
	}
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		t.Fatal(err)
	}
	n.router.SetView(&cluster.View{Number: 1, Members: members, Ring: r})
}
