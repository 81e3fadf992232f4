package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	rlscommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/tracing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A line of the decision log has the trace of its caller, whether or not this node traces it.
func TestDecisionLogHasTheTrace(t *testing.T) {
	f := newFixture(t, loggedRules)
	lines := f.record(t, decisionlog.All, decisionlog.Clear)
	const id = "0123456789abcdef0123456789abcdef"
	for _, flags := range []string{"00", "01"} {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+id+"-00000000000000aa-"+flags))
		if _, err := f.server().CheckRateLimit(ctx, request("user=alice endpoint=/two")); err != nil {
			t.Fatal(err)
		}
	}
	f.check(t, "user=bob endpoint=/two")
	got := lines()
	if len(got) != 3 || got[0].TraceID != id || got[1].TraceID != id || got[2].TraceID != "" {
		t.Errorf("%+v", got)
	}
}

// BenchmarkTracing is a check of one limit without tracing, with a sample of 1 %, and with all: within the process, and over
// gRPC without a network.
func BenchmarkTracing(b *testing.B) {
	for _, bb := range []struct {
		name  string
		share float64
	}{{"off", 0}, {"1%", 0.01}, {"all", 1}} {
		fixture := func(b *testing.B) *fixture {
			f := newFixture(b, benchRules)
			if bb.share > 0 {
				provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}))
				b.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
				f.checks.Tracing = tracing.New(provider, bb.share)
			}
			return f
		}
		b.Run("process/"+bb.name, func(b *testing.B) {
			benchmark(b, fixture(b).Limiter.check, request("user=alice endpoint=/one"))
		})
		b.Run("gRPC/"+bb.name, func(b *testing.B) {
			client, req := weirv1.NewRateLimiterClient(fixture(b).dial(b)), request("user=alice endpoint=/one")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := client.CheckRateLimit(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// discard is an exporter that sends nothing.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// Each message of a stream belongs to the span that it names, and to none if it names none.
func TestMessagesOfAStreamAreTraced(t *testing.T) {
	f := newFixture(t, inputRules)
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	f.checks.Tracing = tracing.New(provider, 0)
	s := f.stream(t)
	const id = "0123456789abcdef0123456789abcdef"
	for i, parent := range []string{"", "00-" + id + "-00000000000000aa-01", "00-" + id + "-00000000000000aa-00", "malformed"} {
		s.sendMessage(&weirv1.StreamRateLimitsRequest{Id: uint64(i), Requests: []*weirv1.RateLimitRequest{request("user=alice")}, Traceparent: parent})
		if m := s.receive(); m.GetError() != nil {
			t.Fatalf("with %q: %v", parent, m)
		}
	}
	s.closed()
	got := spans.GetSpans()
	if len(got) != 1 || got[0].SpanContext.TraceID().String() != id || got[0].Parent.SpanID().String() != "00000000000000aa" {
		t.Errorf("spans %v, want one of %s", got, id)
	}
}

// tracedRules limit each user.
const tracedRules = `
domain: default
rules:
  - {id: posts, per: [user], limits: [{limit: 1, window: 1h}]}
`

// A call of each API that its caller traces has one span of a server in that trace, below the caller's, whether it is allowed or
// denied. No span has a value of an identifier, an endpoint, an attribute or a descriptor.
func TestCallsOfEachAPIAreTraced(t *testing.T) {
	f := newFixture(t, tracedRules)
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	f.checks.Tracing = tracing.New(provider, 0)
	f.auth = trustingAuth(t, "X-Forwarded-For")
	conn, h := f.dial(t), f.handler(t)
	client, envoy := weirv1.NewRateLimiterClient(conn), rlsv3.NewRateLimitServiceClient(conn)
	withParent := func(parent string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), "traceparent", parent)
	}
	asked := func(user string) *weirv1.RateLimitRequest {
		return request("user=" + user + " endpoint=/secret-endpoint plan=secret-plan")
	}
	post := func(parent, path, body string) error {
		r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Traceparent", parent)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
			return fmt.Errorf("%d %s", w.Code, w.Body)
		}
		return nil
	}
	body := func(user string) string {
		return `{"identifier_type":"user","identifier":"` + user + `","endpoint":"/secret-endpoint","attributes":{"plan":"secret-plan"}}`
	}
	for _, tc := range []struct {
		name, api string
		call      func(parent, user string) error
	}{
		{"CheckRateLimit", "check", func(parent, user string) error {
			_, err := client.CheckRateLimit(withParent(parent), asked(user))
			return err
		}},
		{"CheckRateLimitBatch", "batch", func(parent, user string) error {
			_, err := client.CheckRateLimitBatch(withParent(parent), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{asked(user), asked("secret-other")}})
			return err
		}},
		{"StreamRateLimits", "stream", func(parent, user string) error {
			open, err := client.StreamRateLimits(t.Context())
			if err != nil {
				return err
			}
			s := testStream{open, t}
			s.sendMessage(&weirv1.StreamRateLimitsRequest{Id: 1, Requests: []*weirv1.RateLimitRequest{asked(user)}, Traceparent: parent})
			s.receive()
			s.closed()
			return nil
		}},
		{"ShouldRateLimit", "envoy", func(parent, user string) error {
			_, err := envoy.ShouldRateLimit(withParent(parent), &rlsv3.RateLimitRequest{Domain: "default", Descriptors: []*rlscommon.RateLimitDescriptor{
				{Entries: []*rlscommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}, {Key: "plan", Value: "secret-plan"}}},
			}})
			return err
		}},
		{"POST /json", "envoy", func(parent, user string) error {
			return post(parent, "/json", `{"domain":"default","descriptors":[{"entries":[{"key":"user","value":"`+user+`"},{"key":"plan","value":"secret-plan"}]}]}`)
		}},
		{"POST /v1/check", "check", func(parent, user string) error { return post(parent, checkPath, body(user)) }},
		{"POST /v1/check:batch", "batch", func(parent, user string) error {
			return post(parent, batchPath, `{"requests":[`+body(user)+`,`+body("secret-other")+`]}`)
		}},
		{"GET /auth", "auth", func(parent, user string) error {
			r := authRequest(proxy, "GET /auth\nX-Forwarded-For: 203.0.113.7\nX-Forwarded-Uri: /secret-endpoint\nX-User: "+user+"\nX-Api-Key: secret-key\nTraceparent: "+parent)
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
				return fmt.Errorf("%d %s", w.Code, w.Body)
			}
			return nil
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			user := "secret-user-of-" + strings.ReplaceAll(tc.name, " ", "-")
			for i, allowed := range []bool{true, false} {
				spans.Reset()
				id := fmt.Sprintf("0123456789abcdef0123456789abcde%d", i)
				if err := tc.call("00-"+id+"-00000000000000aa-01", user); err != nil {
					t.Fatal(err)
				}
				got := spans.GetSpans()
				if len(got) != 1 {
					t.Fatalf("spans %v, want one", got)
				}
				expectSpan(t, got[0], id, tc.api, allowed)
			}
		})
	}
}

// expectSpan fails the test if a span is not that of a check of tracedRules in the trace id, or has a value of its caller.
func expectSpan(t *testing.T, s tracetest.SpanStub, id, api string, allowed bool) {
	t.Helper()
	if s.Name != "weir.check" || s.SpanKind != trace.SpanKindServer || s.SpanContext.TraceID().String() != id || s.Parent.SpanID().String() != "00000000000000aa" || !s.Parent.IsRemote() {
		t.Errorf("span %s of kind %v in trace %s below %s", s.Name, s.SpanKind, s.SpanContext.TraceID(), s.Parent.SpanID())
	}
	attributes := attribute.NewSet(s.Attributes...)
	for key, want := range map[attribute.Key]string{
		"weir.api": api, "weir.rule": "posts", "weir.owner": "here", "weir.source": "owner", "weir.domain": "default", "weir.allowed": fmt.Sprint(allowed),
	} {
		if got, has := attributes.Value(key); !has || got.String() != want {
			t.Errorf("%s is %q, want %q", key, got.String(), want)
		}
	}
	texts := []string{s.Name, s.Status.Description}
	collect := func(attributes []attribute.KeyValue) {
		for _, a := range attributes {
			texts = append(texts, string(a.Key), a.Value.String())
		}
	}
	collect(s.Attributes)
	for _, e := range s.Events {
		texts = append(texts, e.Name)
		collect(e.Attributes)
	}
	for _, l := range s.Links {
		collect(l.Attributes)
	}
	for _, text := range texts {
		if strings.Contains(text, "secret") || strings.Contains(text, "203.0.113") {
			t.Errorf("the span has %q, which the caller has sent", text)
		}
	}
}
