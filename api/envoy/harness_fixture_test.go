package envoy

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// fixture is the service of a node that decides alone.
type fixture struct {
	*Service
	*apitest.Node
	registry *prometheus.Registry
	ready    bool
}

func newFixture(t testing.TB, text string) *fixture { return newConfiguredFixture(t, text, Config{}) }

func newConfiguredFixture(t testing.TB, text string, config Config) *fixture {
	t.Helper()
	set, err := rules.Options{Envoy: config.Rules}.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{registry: prometheus.NewRegistry(), Node: new(apitest.Node)}
	f.Shard, err = shard.New(shard.Config{Partitions: 1021, MaxBytes: 64 << 20, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	checks := check.New(check.Config{
		Rules: func() *rules.Set { return set }, Hasher: ring.NewHasher([ring.SecretSize]byte{1}), Decider: f.Node, Metrics: f.registry,
	})
	f.Service = New(checks, config, noOverload{}, slog.New(slog.DiscardHandler))
	return f
}

// dial serves the service over gRPC until the test ends.
func (f *fixture) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	listener := inmemory.NewListener()
	server := grpc.NewServer(wire.ServerOptions(MaxMessage, MaxMessage, 1<<30, func(context.Context, int) {})...)
	f.Register(server)
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:node",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close() // it was never used for writing
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// handler serves the paths of the service and the metrics.
func (f *fixture) handler(t testing.TB) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	f.AddPaths(mux, func() bool { return f.ready }, func(http.ResponseWriter, error) { t.Error("a caller was refused") })
	mux.Handle("GET /metrics", promhttp.HandlerFor(f.registry, promhttp.HandlerOpts{}))
	return mux
}

// refused reports an error that is not the INVALID_ARGUMENT that it should be.
func refused(t *testing.T, err error, want string) {
	t.Helper()
	if st := status.Convert(err); st.Code() != codes.InvalidArgument || st.Message() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// noOverload is an Overload that has time for all calls.
type noOverload struct{}

func (noOverload) Admit(context.Context, *rules.Set, string, int) bool { return true }
func (noOverload) Ended(context.Context)                               {}
func (noOverload) Watched(next http.Handler) http.Handler              { return next }
