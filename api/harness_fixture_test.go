package api

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// bubble is when a synctest bubble begins, in Unix seconds: at the edge of a day.
const bubble = 946_684_800

// fixture is the API of a node that decides alone.
type fixture struct {
	*Limiter
	shard    *shard.Shard
	config   *ConfigServer
	status   *apitest.Status
	registry *prometheus.Registry
	grpc     *grpc.Server // once there is a dial

	// silent says for which takes no node answers, and delay how long it takes until that is known. Set
	// them before the requests.
	silent func(shard.Take) bool
	source shard.Source // the node that answers, if not the owner
	delay  time.Duration

	intercept grpc.UnaryServerInterceptor // set it before dial
	tap       tap.ServerInHandle          // likewise
	guard     Guard                       // set it before handler
	access    *Access                     // likewise
}

func newFixture(t testing.TB, text string) *fixture {
	t.Helper()
	return newFixtureWith(t, text, topkeys.NewRecorder(nil))
}

// newFixtureWith returns one whose busiest keys top records; nil is none.
func newFixtureWith(t testing.TB, text string, top *topkeys.Recorder) *fixture {
	t.Helper()
	set, err := rules.Parse("f.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{registry: prometheus.NewRegistry(), config: NewConfigServer(apitest.FixedRules{Set: set}), status: &apitest.Status{Set: set, ClusterID: "00000000000000c1"}}
	f.shard, err = shard.New(shard.Config{Partitions: 1021, MaxBytes: 64 << 20, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	f.tap = func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, nil }
	f.Limiter = NewLimiter(Config{
		Rules: func() *rules.Set { return set }, Hasher: ring.NewHasher([ring.SecretSize]byte{1}), Decider: f, Metrics: f.registry, Top: top,
		Style: headers.Style{Forms: []headers.Form{headers.Draft, headers.XRateLimit}},
	})
	return f
}

// Owner implements Decider.
func (f *fixture) Owner(ring.Key) string { return "here" }

// Standby implements Decider.
func (f *fixture) Standby(ring.Key) string { return "there" }

// HasTime implements Decider.
func (f *fixture) HasTime([]shard.Take, int) bool { return true }

// Decide implements Decider.
func (f *fixture) Decide(ctx context.Context, groups []shard.Group) {
	apitest.Node{Shard: f.shard, Silent: f.silent, Source: f.source, Delay: f.delay}.Decide(ctx, groups)
}

func (f *fixture) server() rateLimiter { return rateLimiter{Limiter: f.Limiter} }

// check returns a decision that is no error.
func (f *fixture) check(t testing.TB, text string) *weirv1.RateLimitResponse {
	t.Helper()
	resp, err := f.server().CheckRateLimit(t.Context(), request(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return resp
}

// dial serves the API over gRPC until the test ends.
func (f *fixture) dial(t testing.TB, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener := f.serve(t)
	conn, err := grpc.NewClient("passthrough:node", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // it was never used for writing
	return conn
}

// serve serves the API over gRPC until the test ends.
func (f *fixture) serve(t testing.TB) *inmemory.Listener {
	t.Helper()
	listener := inmemory.NewListener()
	// A node has windows of fixed sizes, too: so gRPC sends no pings to size them.
	windows := []grpc.ServerOption{grpc.StaticStreamWindowSize(StreamWindow), grpc.StaticConnWindowSize(1 << 20)}
	server := grpc.NewServer(append(append(ServerOptions(), windows...), grpc.Creds(f.Limiter.Credentials(insecure.NewCredentials())), grpc.UnaryInterceptor(f.intercept), f.Limiter.InTapHandle(f.tap))...)
	f.grpc = server
	Register(server, f.Limiter, f.config, f.status, f.access)
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener
}

// request reads what people write for weir check: first the identifier as
// type=name; then endpoint, domain, cost and peek, or other attributes.
func request(text string) *weirv1.RateLimitRequest {
	req := &weirv1.RateLimitRequest{}
	for field := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(field, "=")
		switch {
		case req.IdentifierType == "":
			req.IdentifierType, req.Identifier = key, value
		case key == "endpoint":
			req.Endpoint = value
		case key == "domain":
			req.Domain = value
		case key == "cost":
			req.TokensRequested, _ = strconv.ParseInt(value, 10, 64)
		case key == "peek":
			req.Peek = true
		case req.Attributes == nil:
			req.Attributes = map[string]string{key: value}
		default:
			req.Attributes[key] = value
		}
	}
	return req
}

// brief tells every field of a response, with reset_time from the bubble's begin.
func brief(r *weirv1.RateLimitResponse) string {
	parts := []string{"denied", strings.ToLower(strings.TrimPrefix(r.GetSource().String(), "SOURCE_"))}
	if r.GetAllowed() {
		parts[0] = "allowed"
	}
	if r.GetRuleId() != "" || r.GetLimit() != 0 || r.GetWindow() != nil {
		parts = append(parts, fmt.Sprintf("%s %d/%v", r.GetRuleId(), r.GetLimit(), r.GetWindow().AsDuration()))
	}
	if r.GetRemainingTokens() != 0 || r.GetResetTime() != 0 || r.GetResetAfter() != nil {
		parts = append(parts, fmt.Sprintf("left %d reset %d %v", r.GetRemainingTokens(), r.GetResetTime()-bubble, r.GetResetAfter().AsDuration()))
	}
	if r.GetRetryAfterSeconds() != 0 || r.GetRetryAfter() != nil {
		parts = append(parts, fmt.Sprintf("retry %d %v", r.GetRetryAfterSeconds(), r.GetRetryAfter().AsDuration()))
	}
	return strings.Join(parts, " ")
}
