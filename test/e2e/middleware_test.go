package e2e

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/grpclimit"
	"github.com/weirlimit/weir/client/httplimit"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// An HTTP server and a gRPC server, each with a client of its own, share the limit of a real
// node, and go on serving when that is killed.
func TestServersShareALimit(t *testing.T) {
	t.Parallel()
	const limit, each = 10, 20
	n := process.Start(t, "--rules", writeRules(t, rulesPerYear(limit)))
	var undecided atomic.Int64
	count := func(answer *weirv1.RateLimitResponse) {
		if client.Undecided(answer) {
			undecided.Add(1)
		}
	}
	overHTTP := httpServer(t, n, httplimit.WithTimeout(5*time.Second),
		httplimit.OnAnswer(func(_ *http.Request, answer *weirv1.RateLimitResponse) { count(answer) }))
	overGRPC := grpcServer(t, n, grpclimit.WithTimeout(5*time.Second),
		grpclimit.OnAnswer(func(_ context.Context, answer *weirv1.RateLimitResponse) { count(answer) }))

	var allowed atomic.Int64
	var wg sync.WaitGroup
	for _, ask := range []func() bool{overHTTP, overGRPC} {
		for range each {
			wg.Go(func() {
				if ask() {
					allowed.Add(1)
				}
			})
		}
	}
	wg.Wait()
	if allowed.Load() != limit || undecided.Load() != 0 {
		t.Errorf("%d of %d allowed, %d of them undecided, want %d and 0", allowed.Load(), 2*each, undecided.Load(), limit)
	}

	n.Kill()
	if !overHTTP() || !overGRPC() || undecided.Load() != 2 {
		t.Errorf("%d allowed without a node, want 2", undecided.Load())
	}
}

// newClient returns a client of a node.
func newClient(t *testing.T, n *process.Node) *client.Client {
	t.Helper()
	c, err := client.New(n.GRPC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// httpServer runs a server with a limit per user, and returns how to ask it as one.
func httpServer(t *testing.T, n *process.Node, opts ...httplimit.Option) (ask func() bool) {
	t.Helper()
	limited, err := httplimit.New(newClient(t, n), append(opts, httplimit.User(func(r *http.Request) string { return r.Header.Get("User") }))...)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })))
	t.Cleanup(s.Close)
	return func() bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Error(err)
			return false
		}
		r.Header.Set("User", "alice")
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Error(err)
			return false
		}
		defer resp.Body.Close()
		if denied := resp.StatusCode == http.StatusTooManyRequests; !denied && resp.StatusCode != http.StatusNoContent || denied && resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s, %v", resp.Status, resp.Header)
		}
		return resp.StatusCode == http.StatusNoContent
	}
}

// grpcServer is httpServer for gRPC.
func grpcServer(t *testing.T, n *process.Node, opts ...grpclimit.Option) (ask func() bool) {
	t.Helper()
	limited, err := grpclimit.New(newClient(t, n), append(opts, grpclimit.User(func(ctx context.Context) string {
		return metadata.ValueFromIncomingContext(ctx, "user")[0]
	}))...)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.UnaryInterceptor(limited.Unary), grpc.StreamInterceptor(limited.Stream))
	healthpb.RegisterHealthServer(s, grpchealth.NewServer())
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(listener) }() // until Stop
	t.Cleanup(s.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	asked := healthpb.NewHealthClient(conn)
	return func() bool {
		_, err := asked.Check(metadata.AppendToOutgoingContext(t.Context(), "user", "alice"), &healthpb.HealthCheckRequest{})
		if _, ok := client.RetryAfter(err); err != nil && (status.Code(err) != codes.ResourceExhausted || !ok) {
			t.Error(err)
		}
		return err == nil
	}
}
