package envoy

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
)

const benchRules = `
domain: default
rules:
  - {id: one, when: {endpoint: /one}, per: [user], limits: [{limit: 2147483648, window: 1h}]}
  - {id: three, when: {endpoint: /three}, per: [user], limits: [{limit: 2147483648, window: 1s}, {limit: 2147483648, window: 1m}, {limit: 2147483648, window: 1h}]}
`

// benchmark makes a call over and over, from encoded request to encoded answer.
func benchmark(b *testing.B, answer wire.Answerer, req proto.Message) {
	message := apitest.Marshal(b, req)
	b.ReportAllocs()
	for b.Loop() {
		m, err := answer(b.Context(), wire.NewPart(message))
		if err != nil {
			b.Fatal(err)
		}
		m.Free()
	}
}

// BenchmarkShouldRateLimit is Envoy's call with two descriptors.
func BenchmarkShouldRateLimit(b *testing.B) {
	benchmark(b, newFixture(b, benchRules).check, &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: apitest.Descriptors("user=alice endpoint=/one", "user=alice endpoint=/three"),
	})
}

// BenchmarkShouldRateLimitOfDescriptors is the same call in a domain of descriptors.
func BenchmarkShouldRateLimitOfDescriptors(b *testing.B) {
	f := newFixture(b, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 4294967295}}\n"+
		"  - {key: endpoint, value: '/t*', descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 4294967295}}]}\n")
	benchmark(b, f.check, &rlsv3.RateLimitRequest{
		Domain: "edge", Descriptors: apitest.Descriptors("user=alice", "endpoint=/three user=alice"),
	})
}
