package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/embedded"
	"github.com/weirlimit/weir/client/grpclimit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// deciding is a client.Checker that decides by a function.
type deciding func(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)

func (f deciding) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return f(ctx, req)
}

// embed returns a Limiter of one rule.
func embed(t testing.TB, rule string) *embedded.Limiter {
	t.Helper()
	l, err := embedded.New("domain: default\nrules:\n- " + rule + "\n")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

const perUser = "{id: per-user, per: [user], limits: [{limit: 2, window: 1m, algorithm: sliding_window_log}]}"

// user believes what clients say.
var user = grpclimit.User(func(ctx context.Context) string {
	return strings.Join(metadata.ValueFromIncomingContext(ctx, "user"), "")
})

// server is a gRPC server with a unary method and a stream, both limited.
type server struct {
	healthpb.UnimplementedHealthServer
	client healthpb.HealthClient
	served atomic.Int64
	answer atomic.Pointer[weirv1.RateLimitResponse] // of the last request that was served
}

func (s *server) serve(ctx context.Context) {
	s.served.Add(1)
	s.answer.Store(grpclimit.Answer(ctx))
}

func (s *server) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s.serve(ctx)
	return &healthpb.HealthCheckResponse{}, nil
}

func (s *server) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	s.serve(stream.Context())
	return stream.Send(&healthpb.HealthCheckResponse{})
}

func serve(t testing.TB, c client.Checker, opts ...grpclimit.Option) *server {
	t.Helper()
	limit, err := grpclimit.New(c, opts...)
	if err != nil {
		t.Fatal(err)
	}
	s, listener := new(server), bufconn.Listen(1<<16)
	g := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	healthpb.RegisterHealthServer(g, s)
	ended := make(chan error)
	go func() { ended <- g.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:server", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	s.client = healthpb.NewHealthClient(conn)
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

// reply is what a client sees.
type reply struct {
	header, trailer metadata.MD
	err             error
}

func (s *server) unary(ctx context.Context) (r reply) {
	_, r.err = s.client.Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	return r
}

func (s *server) stream(ctx context.Context) (r reply) {
	stream, err := s.client.Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		return reply{err: err}
	}
	_, r.err = stream.Recv()
	r.header, _ = stream.Header()
	r.trailer = stream.Trailer()
	return r
}

// kinds are the two kinds of calls.
var kinds = map[string]func(*server, context.Context) reply{"unary": (*server).unary, "stream": (*server).stream}

func as(t testing.TB, user string) context.Context {
	return metadata.AppendToOutgoingContext(t.Context(), "user", user)
}

func TestLimit(t *testing.T) {
	for name, call := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, embed(t, perUser), user, grpclimit.WithStyle(grpclimit.Style{Forms: []grpclimit.Form{grpclimit.Draft}}))
				for left := range 2 {
					r := call(s, as(t, "alice"))
					if got, want := r.header.Get("ratelimit"), fmt.Sprintf(`["per-user";r=%d;t=60]`, 1-left); r.err != nil || fmt.Sprint(got) != want {
						t.Errorf("%v, %v, want %s", r.err, got, want)
					}
				}
				time.Sleep(10*time.Second + time.Nanosecond)
				r := call(s, as(t, "alice"))
				wait, ok := client.RetryAfter(r.err)
				if status.Code(r.err) != codes.ResourceExhausted || !ok || wait != 50*time.Second-time.Nanosecond {
					t.Errorf("%v after %v", r.err, wait)
				}
				if got := r.trailer.Get("grpc-retry-pushback-ms"); len(r.header) > 0 || fmt.Sprint(got) != "[50000]" {
					t.Errorf("header %v, pushback %v, want none, which keeps gRPC from retrying, and 50000", r.header, got)
				}
				var quota *errdetails.QuotaFailure
				for _, detail := range status.Convert(r.err).Details() {
					if q, ok := detail.(*errdetails.QuotaFailure); ok {
						quota = q
					}
				}
				if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "user:alice" || v[0].GetQuotaId() != "per-user" {
					t.Errorf("%v", quota)
				}
				if s.served.Load() != 2 || s.answer.Load().GetRuleId() != "per-user" {
					t.Errorf("%d served, the last by %v", s.served.Load(), s.answer.Load())
				}
				if r := call(s, as(t, "bob")); r.err != nil {
					t.Errorf("bob pays for alice: %v", r.err)
				}
			})
		})
	}
}

// A client that retries comes back when there is room, and not before.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, begin, tries := serve(t, embed(t, perUser), user), time.Now(), 0
		for range 3 {
			err := client.Retry(t.Context(), client.Backoff{}, func(context.Context) error {
				tries++
				return s.unary(as(t, "alice")).err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); tries != 4 || took < time.Minute || took > 67*time.Second {
			t.Errorf("%d tries in %v, want 4 in a minute and its jitter", tries, took)
		}
	})
}

// What is asked of nodes.
func TestRequest(t *testing.T) {
	for _, tc := range []struct {
		name   string
		opts   []grpclimit.Option
		fields []string
		want   string
	}{
		{"unknown", nil, nil, "= /grpc.health.v1.Health/Check 0 map[]"}, // bufconn has no addresses
		{"user", []grpclimit.Option{user}, []string{"user", "alice"}, "user=alice /grpc.health.v1.Health/Check 0 map[]"},
		{
			"others", []grpclimit.Option{
				grpclimit.APIKey("X-Api-Key"), user, grpclimit.Endpoint(func(context.Context) string { return "e" }),
				grpclimit.Cost(func(context.Context) int64 { return 3 }), grpclimit.Domain("shop"),
			},
			[]string{"user", "alice", "x-api-key", "k"}, "api_key=k e 3 shop map[user:alice]",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got string
			s := serve(t, deciding(func(_ context.Context, r *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
				got = fmt.Sprintf("%s=%s %s %d %s", r.GetIdentifierType(), r.GetIdentifier(), r.GetEndpoint(), r.GetTokensRequested(), r.GetDomain())
				got = strings.TrimPrefix(strings.TrimSuffix(got, " "), "ip") + fmt.Sprintf(" %v", r.GetAttributes())
				return &weirv1.RateLimitResponse{Allowed: true}, nil
			}), tc.opts...)
			if r := s.unary(metadata.AppendToOutgoingContext(t.Context(), tc.fields...)); r.err != nil || got != tc.want {
				t.Errorf("%v\n got %s\nwant %s", r.err, got, tc.want)
			}
		})
	}
}

// The address is that of the connection, unless a trusted proxy says otherwise.
func TestIP(t *testing.T) {
	for want, opts := range map[string][]grpclimit.Option{
		"127.0.0.1":    nil,
		"198.51.100.7": {grpclimit.IP(netip.MustParsePrefix("127.0.0.0/8"))},
	} {
		var got string
		limit, err := grpclimit.New(deciding(func(_ context.Context, r *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
			got = r.GetIdentifierType() + "=" + r.GetIdentifier()
			return &weirv1.RateLimitResponse{Allowed: true}, nil
		}), opts...)
		if err != nil {
			t.Fatal(err)
		}
		g, s := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary)), new(server)
		healthpb.RegisterHealthServer(g, s)
		var config net.ListenConfig
		listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _ = g.Serve(listener) }()
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		s.client = healthpb.NewHealthClient(conn)
		r := s.unary(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", "192.0.2.66, 198.51.100.7"))
		if r.err != nil || got != "ip="+want {
			t.Errorf("%v, %s, want ip=%s", r.err, got, want)
		}
		_ = conn.Close()
		g.Stop()
	}
}

// Calls wait for the turns that a rule has booked, for as long as their deadline lets them.
func TestTurns(t *testing.T) {
	for name, call := range kinds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, embed(t, "{id: queue, limits: [{limit: 1, window: 1m, burst: 9, algorithm: leaky_bucket}]}"), user)
				begin := time.Now()
				for i := range 3 {
					if r := call(s, as(t, "alice")); r.err != nil || time.Since(begin) != time.Duration(i)*time.Minute {
						t.Errorf("%v after %v", r.err, time.Since(begin))
					}
				}
				soon, cancel := context.WithTimeout(as(t, "alice"), time.Second)
				defer cancel()
				r := call(s, soon)
				if wait, ok := client.RetryAfter(r.err); status.Code(r.err) != codes.ResourceExhausted || !ok || wait < time.Minute || soon.Err() != nil {
					t.Errorf("%v after %v, want to know at once that the deadline is too early", r.err, time.Since(begin))
				}
				gone, leave := context.WithCancel(as(t, "alice"))
				time.AfterFunc(time.Second, leave)
				if r := call(s, gone); status.Code(r.err) != codes.Canceled {
					t.Error(r.err)
				}
				synctest.Wait()
				if s.served.Load() != 3 {
					t.Errorf("%d served, want 3", s.served.Load())
				}
			})
		})
	}
}

// Calls are answered in time after any failure of the limiter.
func TestWithoutAnswer(t *testing.T) {
	silent := deciding(func(ctx context.Context, _ *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	failing := func(err error) deciding {
		return func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) { return nil, err }
	}
	blocked := deciding(func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
		return &weirv1.RateLimitResponse{
			RuleId: "r", ResetAfter: durationpb.New(0), DenialReason: weirv1.DenialReason_DENIAL_REASON_BLOCKED.Enum(),
		}, nil
	})
	for _, tc := range []struct {
		name     string
		c        client.Checker
		opts     []grpclimit.Option
		code     codes.Code
		took     time.Duration
		source   weirv1.Source
		pushback string
	}{
		{"silent", silent, nil, codes.OK, client.DefaultTimeout, weirv1.Source_SOURCE_FAIL_OPEN, "[]"},
		{"own deadline", silent, []grpclimit.Option{grpclimit.WithTimeout(time.Millisecond)}, codes.OK, time.Millisecond, weirv1.Source_SOURCE_FAIL_OPEN, "[]"},
		{"fail closed", silent, []grpclimit.Option{grpclimit.WithFailClosed()}, codes.ResourceExhausted, client.DefaultTimeout, weirv1.Source_SOURCE_FAIL_CLOSED, "[]"},
		{"broken", failing(errors.New("broken")), nil, codes.OK, 0, weirv1.Source_SOURCE_FAIL_OPEN, "[]"},
		{"overloaded", failing(status.Error(codes.ResourceExhausted, "overloaded")), nil, codes.Unavailable, 0, 0, "[1000]"},
		{"refused", failing(&client.AccessError{Address: "a:1", Reason: status.Error(codes.PermissionDenied, "no role")}), nil, codes.Internal, 0, 0, "[]"},
		{"refused, fail closed", failing(status.Error(codes.Unauthenticated, "no token")), []grpclimit.Option{grpclimit.WithFailClosed()}, codes.Internal, 0, 0, "[]"},
		{"invalid", failing(status.Error(codes.InvalidArgument, "identifier")), nil, codes.InvalidArgument, 0, 0, "[]"},
		{"blocked", blocked, nil, codes.ResourceExhausted, 0, 0, "[-1]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var source atomic.Int32
				s := serve(t, tc.c, append(tc.opts, grpclimit.OnAnswer(func(_ context.Context, answer *weirv1.RateLimitResponse) {
					source.Store(int32(answer.GetSource()))
				}))...)
				begin := time.Now()
				r := s.unary(t.Context())
				if status.Code(r.err) != tc.code || time.Since(begin) != tc.took || source.Load() != int32(tc.source) {
					t.Errorf("%v by %v after %v, want %v by %v after %v", r.err, source.Load(), time.Since(begin), tc.code, tc.source, tc.took)
				}
				if got := fmt.Sprint(r.trailer.Get("grpc-retry-pushback-ms")); got != tc.pushback {
					t.Errorf("pushback %s, want %s", got, tc.pushback)
				}
				if tc.code == codes.OK && s.answer.Load().GetSource() != tc.source || tc.code != codes.OK && s.served.Load() != 0 {
					t.Errorf("%d served, by %v", s.served.Load(), s.answer.Load())
				}
			})
		})
	}
}

func TestOptions(t *testing.T) {
	for want, opt := range map[string]grpclimit.Option{
		`by "user": the function is nil`: grpclimit.User(nil),
		`ip: a block of trusted proxies`: grpclimit.IP(netip.Prefix{}),
		`timeout: 0s is not positive`:    grpclimit.WithTimeout(0),
	} {
		if _, err := grpclimit.New(embed(t, perUser), opt); err == nil || !strings.HasPrefix(err.Error(), "grpclimit: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// A key that a node would refuse is no way around the limits.
func TestTooLong(t *testing.T) {
	s := serve(t, embed(t, perUser), user)
	r := s.unary(as(t, strings.Repeat("a", 257)))
	if status.Code(r.err) != codes.InvalidArgument || !strings.Contains(r.err.Error(), "257 bytes are more than 256") || s.served.Load() != 0 {
		t.Errorf("%v, %d served", r.err, s.served.Load())
	}
}

// A caller that has gone is told so.
func TestCanceled(t *testing.T) {
	limit, err := grpclimit.New(embed(t, perUser), user)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := limit.Unary(ctx, nil, nil, nil); status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}
