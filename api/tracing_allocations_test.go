//go:build !race

package api

import (
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/tracing"
)

// Without tracing, and for calls that are not in the sample, nothing is allocated for it. With the race detector, pools forget
// at random what they have.
func TestUntracedCallsAllocateNothing(t *testing.T) {
	provider := sdktrace.NewTracerProvider()
	message := apitest.Marshal(t, request("user=alice endpoint=/one"))
	allocations := func(tr *tracing.Tracing) float64 {
		f := newFixture(t, benchRules)
		f.checks.Tracing = tr
		return testing.AllocsPerRun(1000, func() {
			m, err := f.Limiter.check(t.Context(), wire.NewPart(message))
			if err != nil {
				t.Fatal(err)
			}
			m.Free()
		})
	}
	off, rare, all := allocations(nil), allocations(tracing.New(provider, 1e-12)), allocations(tracing.New(provider, 1))
	if rare > off || all <= off {
		t.Errorf("%v allocations without tracing, %v out of the sample, %v with all", off, rare, all)
	}
}
