package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/inmemory"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// dialShared serves gRPC and HTTP on one port, as permitted by f.access, until the test ends.
func (f *fixture) dialShared(t testing.TB) (*grpc.ClientConn, *http.Client) {
	t.Helper()
	calls := grpc.NewServer(ServerOptions()...)
	Register(calls, f.Limiter, f.config, f.status, f.access)
	healthpb.RegisterHealthServer(calls, health.NewServer())
	reflection.Register(calls)
	profiles := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.delay > 0 { // in a bubble
			select {
			case <-time.After(f.delay):
			case <-r.Context().Done():
				writeText(w, http.StatusGone, "the caller has gone")
				return
			}
		}
		writeText(w, http.StatusOK, "profiles")
	})
	server, err := NewHTTPServer(f.Limiter, f.config, f.status, HTTPConfig{Gather: f.registry, Guard: f.guard, Permits: f.access, Profiles: profiles, GRPC: calls})
	if err != nil {
		t.Fatal(err)
	}
	listener := inmemory.NewListener()
	dial := func(ctx context.Context) (net.Conn, error) { return listener.DialContext(ctx) }
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:node", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	t.Cleanup(func() {
		_ = conn.Close() // it was never used for writing
		transport.CloseIdleConnections()
		_ = server.Close()
		calls.Stop()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return conn, &http.Client{Transport: transport}
}

// checkCalls are those that only the public ports serve, in addition to those of nodes.
var checkCalls = []string{
	weirv1.RateLimiter_CheckRateLimit_FullMethodName, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName,
	weirv1.RateLimiter_StreamRateLimits_FullMethodName, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
	"POST /v1/check", "POST /v1/check:batch", "/auth", "/auth/{domain}", "POST /json",
}

// personalCalls return identifiers of the clients' own users.
var personalCalls = []string{weirv1.Cluster_ListTopKeys_FullMethodName, "GET /v1/top"}

// The table serves the dashboard, metrics, what needs the role admin, and all changes at the admin port, and checks at the others.
func TestPortOfEachCall(t *testing.T) {
	for call, n := range needs {
		want := AnyPort
		switch {
		case slices.Contains(checkCalls, call) || n.role == access.Peer:
			want = PublicPort
		case isUI(call) || n.changes || slices.Contains(personalCalls, call) || n.role == access.Admin || n.role == access.Metrics:
			want = AdminPort
		}
		if n.port != want {
			t.Errorf("%s is served at port %d, want %d", call, n.port, want)
		}
	}
	if n := neededBy("/weir.v1.Cluster/NoSuch"); n.port != AdminPort || n.role != access.Admin {
		t.Errorf("an unknown call needs %v at port %d", n.role, n.port)
	}
}

// Every call of the table is refused at the ports that do not serve it, and at no other: over gRPC as
// unimplemented, over HTTP as unknown.
func TestCallsAtEachPort(t *testing.T) {
	const elsewhere = "not served at th" // is port, e admin port
	for _, port := range []Port{AnyPort, PublicPort, AdminPort} {
		f := newFixture(t, accessRules)
		f.status.Current = newView(t, 1, "a")
		f.access = (*Access)(nil).At(port)
		shared, web := f.dialShared(t)
		f.tap = f.access.Tap(f.Limiter.Tap)
		conns := map[string]*grpc.ClientConn{"of its own": f.dial(t), "shared with HTTP": shared}
		for call, n := range needs {
			refused := port != AnyPort && n.port != AnyPort && n.port != port
			if isMethod(call) {
				for name, conn := range conns {
					err := beginCall(t, conn, call)
					if got := status.Code(err) == codes.Unimplemented && strings.Contains(err.Error(), elsewhere); got != refused {
						t.Errorf("port %d, %s: %s: %v", port, name, call, err)
					}
				}
				continue
			}
			method, path, found := strings.Cut(call, " ")
			if !found {
				method, path = http.MethodPost, call
			}
			code, body := roundTrip(t, web, method, strings.NewReplacer("{$}", "", "{", "", "}", "", "...", "").Replace(path), "")
			if got := code == http.StatusNotFound && strings.Contains(body, elsewhere); got != refused {
				t.Errorf("port %d: %s: %d %s", port, call, code, body)
			}
			if refused && strings.Contains(body, "127.0.0.1") {
				t.Errorf("%s: the answer has an address: %s", call, body)
			}
		}
	}
}

// beginCall makes a call with an empty message, and returns how it begins.
func beginCall(t *testing.T, conn *grpc.ClientConn, call string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, call)
	if err != nil {
		return err
	}
	_ = stream.SendMsg(&weirv1.GetRingRequest{}) // RecvMsg says why it fails
	_ = stream.CloseSend()
	return stream.RecvMsg(new(weirv1.GetRingResponse))
}

// roundTrip asks once, with that token unless it is empty.
func roundTrip(t *testing.T, c *http.Client, method, path, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost"+path, bytes.NewReader([]byte("{}")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if path == "/v1/rules:watch" { // else it lasts
		r.Method = http.MethodHead
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// What is asked for by other spellings of a path is not served at the public port either.
func TestSpellingsAtThePublicPort(t *testing.T) {
	f := newFixture(t, accessRules)
	f.access = (*Access)(nil).At(PublicPort)
	_, web := f.dialShared(t)
	for _, path := range []string{
		"GET /metrics?name[]=up", "HEAD /metrics", "POST /v1/nodes/%61:drain", "POST /v1/nodes%2Fa:drain", "POST /v1/reset/", "POST //v1/reset",
		"POST /v1/./reset", "GET /debug/pprof", "GET /debug/pprof/heap", "GET /debug/pprof/profile?seconds=1", "DELETE /v1/rules%2Fshop%2Fr", "GET /v1/nothing",
	} {
		method, path, _ := strings.Cut(path, " ")
		web.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if code, body := roundTrip(t, web, method, path, ""); code != http.StatusNotFound {
			t.Errorf("%s %s: %d %s", method, path, code, body)
		}
	}
	if f.status.Drained {
		t.Error("it was drained")
	}
}

// At the public port of a node with an admin port, health says what clients identify the node by, and the list of
// nodes has no address of an admin port.
func TestHealthDetailsAtEachPort(t *testing.T) {
	for port, want := range map[Port]struct{ details, admin bool }{
		AnyPort: {true, true}, PublicPort: {false, false}, AdminPort: {true, true},
	} {
		f := newFixture(t, accessRules)
		f.status.Node = cluster.Node{ID: "a", Incarnation: 7, Version: "v1"}
		f.status.Faults, f.status.Count, f.status.IsReady = []string{"one thing."}, 3, true
		f.status.Current = newView(t, 9, "a", "b")
		f.status.Registered = []cluster.Node{{ID: "a", Address: "a:1", Admin: "a:2", Incarnation: 7, State: cluster.Ready}}
		f.access = (*Access)(nil).At(port)
		conn, web := f.dialShared(t)
		h, err := weirv1.NewRateLimiterHealthClient(conn).GetHealthStatus(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if h.GetNodeId() != "a" || h.GetIncarnation() != 7 || !h.GetReady() || h.GetCluster() == "" {
			t.Errorf("port %d: %v", port, h)
		}
		details := len(h.GetReasons()) > 0 && h.GetVersion() != "" && h.GetRulesHash() != "" && h.GetCounters() > 0 && h.GetView() > 0 && len(h.GetMembers()) > 0
		none := len(h.GetReasons()) == 0 && h.GetVersion() == "" && h.GetRulesHash() == "" && h.GetCounters() == 0 && h.GetView() == 0 && len(h.GetMembers()) == 0
		if details != want.details || none == want.details {
			t.Errorf("port %d: %v", port, h)
		}
		if _, body := roundTrip(t, web, http.MethodGet, "/v1/health", ""); strings.Contains(body, "one thing.") != want.details {
			t.Errorf("port %d: %s", port, body)
		}
		nodes, err := weirv1.NewClusterClient(conn).ListNodes(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := nodes.GetNodes()[0].GetAdminAddress() == "a:2"; got != want.admin {
			t.Errorf("port %d: %v", port, nodes)
		}
		if _, body := roundTrip(t, web, http.MethodGet, "/v1/nodes", ""); strings.Contains(body, "a:2") != want.admin {
			t.Errorf("port %d: %s", port, body)
		}
	}
}

// The admin port has the same tokens and roles as the others, over gRPC and HTTP, and its changes are recorded.
func TestRolesAtTheAdminPort(t *testing.T) {
	var to bytes.Buffer
	f := newFixture(t, accessRules)
	f.audit = audit.New("here", &to)
	a, secrets := tokensOf(t, "check", "metrics", "admin")
	a.Audit = f.audit
	f.access = a.At(AdminPort)
	conn, web := f.dialShared(t)
	for role, want := range map[string]codes.Code{"": codes.Unauthenticated, "check": codes.PermissionDenied, "metrics": codes.PermissionDenied, "admin": codes.OK} {
		_, err := weirv1.NewClusterClient(conn).GetRing(withToken(t.Context(), secrets[role]), &weirv1.GetRingRequest{})
		if status.Code(err) != want {
			t.Errorf("ring with role %q: %v", role, err)
		}
		if want != codes.OK && !strings.Contains(err.Error(), `the role "admin"`) {
			t.Errorf("ring with role %q: %v", role, err)
		}
	}
	for _, tc := range []struct {
		path, role string
		code       int
	}{
		{"/metrics", "", 401}, {"/metrics", "check", 403}, {"/metrics", "metrics", 200}, {"/metrics", "admin", 200},
		{"/debug/pprof/", "metrics", 403}, {"/debug/pprof/heap", "admin", 200},
	} {
		if code, body := roundTrip(t, web, http.MethodGet, tc.path, secrets[tc.role]); code != tc.code {
			t.Errorf("%s with role %q: %d %s", tc.path, tc.role, code, body)
		}
	}
	// The name that the caller has chosen is in the error, which is a header field.
	_, err := weirv1.NewClusterClient(conn).DrainNode(withToken(t.Context(), secrets["admin"]), &weirv1.DrainNodeRequest{NodeId: "ä%\n"})
	if status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
	_, err = weirv1.NewClusterClient(conn).DrainNode(withToken(t.Context(), secrets["check"]), &weirv1.DrainNodeRequest{NodeId: "a"})
	if status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	entries := f.audit.Entries()
	if len(entries) != 2 || entries[0].Client != "admin" || entries[0].From != "pipe" || entries[1].Outcome != "PermissionDenied" {
		t.Errorf("recorded: %+v", entries)
	}
}

// The message of a status reaches the client as it is.
func TestMessageOfARefusedCall(t *testing.T) {
	for text, want := range map[string]string{"plain ~": "plain ~", "100 %": "100 %25", "ä\n": "%C3%A4%0A"} {
		if got := encodeMessage(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A watch and a profile at the admin port last longer than other answers may, and a watch ends when its token is
// revoked.
func TestLongCallsAtTheAdminPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, accessRules)
		a, secrets := tokensOf(t, "rules", "admin")
		f.access = a.At(AdminPort)
		f.delay = 10 * bodyTimeout
		conn, web := f.dialShared(t)
		watch, err := weirv1.NewRateLimiterConfigClient(conn).WatchRules(withToken(t.Context(), secrets["rules"]), &weirv1.WatchRulesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		if code, body := roundTrip(t, web, http.MethodGet, "/debug/pprof/profile?seconds=100", secrets["admin"]); code != http.StatusOK {
			t.Errorf("profile: %d %s", code, body)
		}
		a.Tokens.Set(access.FromFile, nil)
		if _, err := watch.Recv(); status.Code(err) != codes.Unauthenticated {
			t.Errorf("watch: %v", err)
		}
	})
}
