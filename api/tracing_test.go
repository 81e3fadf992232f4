package api

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
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
