// Package tracing makes spans of checks. Which checks are traced is decided when they come in:
// those of callers that trace them, and a share of the others.
package tracing

import (
	"context"
	"math/rand/v2"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Tracing makes spans. A nil *Tracing makes none. It is safe for concurrent use; make it with New.
type Tracing struct {
	share  float64
	tracer trace.Tracer
}

// New returns a Tracing of the tracers of p, and of a share, 0 to 1, of the calls whose callers do not say whether to trace
// them.
func New(p trace.TracerProvider, share float64) *Tracing {
	return &Tracing{share, p.Tracer("github.com/weirlimit/weir")}
}

// Tracer returns what makes the spans within those of Start, nil if there are none.
func (t *Tracing) Tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

// Start begins the span of a call, if the call is traced. Otherwise the span is nil, and nothing is allocated.
func (t *Tracing) Start(ctx context.Context, name string) (context.Context, trace.Span) {
	if t == nil {
		return ctx, nil
	}
	remote := Remote(ctx)
	switch {
	case remote.IsValid() && !remote.IsSampled():
		return ctx, nil
	case remote.IsValid():
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
	case rand.Float64() >= t.share:
		return ctx, nil
	}
	return t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
}

const traceparent, tracestate = "traceparent", "tracestate"

// Remote returns the span of the caller of ctx, as it has said over gRPC or HTTP, or one that is not valid.
func Remote(ctx context.Context) trace.SpanContext {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		return sc
	}
	values := metadata.ValueFromIncomingContext(ctx, traceparent)
	if len(values) != 1 {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{traceparent: values[0]}
	if state := metadata.ValueFromIncomingContext(ctx, tracestate); len(state) == 1 {
		carrier[tracestate] = state[0]
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// WithRemote returns ctx with the span of a caller, as its traceparent. One that is malformed changes nothing.
func WithRemote(ctx context.Context, parent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: parent})
}

// Handler hands the span of each request's caller on in its context.
func Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(traceparent) != "" {
			r = r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
		}
		next.ServeHTTP(w, r)
	})
}
