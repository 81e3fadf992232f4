package tracing

import (
	"math"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// Of calls whose callers do not say whether to trace them, the share is traced. Bounds are six standard deviations of the
// binomial distribution, which a right sampler leaves once in 500 million runs.
func TestShareOfCallsIsTraced(t *testing.T) {
	const calls = 100_000
	for _, share := range []float64{0, 0.01, 0.5, 1} {
		tracing := New(sdktrace.NewTracerProvider(), share)
		traced := 0
		for range calls {
			_, span := tracing.Start(t.Context(), "call")
			if span == nil {
				continue
			}
			if !span.SpanContext().IsSampled() {
				t.Fatal("a span that was started is not sampled")
			}
			span.End()
			traced++
		}
		want, deviation := share*calls, 6*math.Sqrt(calls*share*(1-share))
		if math.Abs(float64(traced)-want) > deviation {
			t.Errorf("%d of %d calls are traced with a share of %v, want %.0f, give or take %.0f", traced, calls, share, want, deviation)
		}
	}
}
