package memetcd_test

import (
	"context"
	"net"
	"os"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/test/process"
	"github.com/weirlimit/weir/test/sim/memetcd"
	"github.com/weirlimit/weir/test/sim/network"
)

// system is an etcd that is to be compared with another.
type system interface {
	// endpoint returns where it is while it runs.
	endpoint() string
	dial(ctx context.Context, address string) (net.Conn, error)
	start(t *testing.T)
	stop()
	wipe(t *testing.T) // while stopped
}

// embedded is the real etcd, by TCP.
type embedded struct {
	dir    string
	listen string
	server *etcd.Server
}

func newEmbedded(t *testing.T) *embedded {
	e := &embedded{dir: t.TempDir(), listen: net.JoinHostPort(process.Host(t), "0")}
	e.start(t)
	e.listen = e.endpoint()
	t.Cleanup(e.stop)
	return e
}

func (e *embedded) start(t *testing.T) {
	t.Helper()
	var err error
	if e.server, err = etcd.StartServer(t.Context(), etcd.ServerConfig{Listen: e.listen, Dir: e.dir}); err != nil {
		t.Fatal(err)
	}
}

func (e *embedded) stop() { e.server.Close() }

func (e *embedded) wipe(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(e.dir); err != nil {
		t.Fatal(err)
	}
}

func (e *embedded) endpoint() string { return e.server.Endpoint() }

func (e *embedded) dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// inMemory is this package's, in a bubble.
type inMemory struct {
	*memetcd.Server
	here, there *network.Host
}

func newInMemory(t *testing.T) *inMemory {
	n := network.New()
	m := &inMemory{Server: memetcd.New(), here: addHost(t, n, "test"), there: addHost(t, n, "etcd")}
	m.start(t)
	t.Cleanup(m.stop)
	return m
}

func addHost(t *testing.T, n *network.Network, name string) *network.Host {
	t.Helper()
	h, err := n.Host(name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func (m *inMemory) start(t *testing.T) {
	t.Helper()
	l, err := m.there.Listen(t.Context(), m.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	m.Start(l)
}

func (m *inMemory) stop()           { m.Stop() }
func (m *inMemory) wipe(*testing.T) { m.Wipe() }

func (m *inMemory) endpoint() string { return "etcd:2379" }

func (m *inMemory) dial(ctx context.Context, address string) (net.Conn, error) {
	return m.here.Dial(ctx, address)
}

// client returns etcd's own client of s, until the test ends.
func client(t *testing.T, s system) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.endpoint()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(s.dial),
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1, MaxDelay: time.Second}}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // its error is the cancellation that it causes itself
	return c
}
