package api

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const benchRules = `
domain: default
rules:
  - {id: one, when: {endpoint: /one}, per: [user], limits: [{limit: 2147483648, window: 1h}]}
  - {id: three, when: {endpoint: /three}, per: [user], limits: [{limit: 2147483648, window: 1s}, {limit: 2147483648, window: 1m}, {limit: 2147483648, window: 1h}]}
`

// BenchmarkCheckRateLimit is a check without the network, by a real shard.
func BenchmarkCheckRateLimit(b *testing.B) {
	for _, bb := range []struct{ name, request string }{
		{"no rule", "user=alice endpoint=/none"},
		{"one limit", "user=alice endpoint=/one"},
		{"three limits", "user=alice endpoint=/three"},
		{"four attributes more", "user=alice endpoint=/one method=GET tenant=t region=r plan=p"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			benchmark(b, newFixture(b, benchRules).Limiter.check, request(bb.request))
		})
	}
}

// benchmark makes a call over and over, from encoded request to encoded answer.
func benchmark(b *testing.B, answer answerer, req proto.Message) {
	message := marshal(b, req)
	b.ReportAllocs()
	for b.Loop() {
		m, err := answer(b.Context(), message)
		if err != nil {
			b.Fatal(err)
		}
		m.Free()
	}
}

// BenchmarkCheckRateLimitParallel is many callers of one limit each.
func BenchmarkCheckRateLimitParallel(b *testing.B) {
	f, message := newFixture(b, benchRules), marshal(b, request("user=alice endpoint=/one"))
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m, err := f.Limiter.check(b.Context(), message)
			if err != nil {
				b.Error(err)
				return
			}
			m.Free()
		}
	})
}

// BenchmarkCheckRateLimitBatch is a batch of 100 checks of one limit each.
func BenchmarkCheckRateLimitBatch(b *testing.B) {
	batch := &weirv1.RateLimitBatchRequest{}
	for range 100 {
		batch.Requests = append(batch.Requests, request("user=alice endpoint=/one"))
	}
	benchmark(b, newFixture(b, benchRules).checkBatch, batch)
}

// BenchmarkShouldRateLimit is Envoy's call with two descriptors.
func BenchmarkShouldRateLimit(b *testing.B) {
	benchmark(b, newFixture(b, benchRules).checkEnvoy, &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: descriptors("user=alice endpoint=/one", "user=alice endpoint=/three"),
	})
}

// BenchmarkShouldRateLimitOfDescriptors is the same call in a domain of descriptors.
func BenchmarkShouldRateLimitOfDescriptors(b *testing.B) {
	f := newFixture(b, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 4294967295}}\n"+
		"  - {key: endpoint, value: '/t*', descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 4294967295}}]}\n")
	benchmark(b, f.checkEnvoy, &rlsv3.RateLimitRequest{
		Domain: "edge", Descriptors: descriptors("user=alice", "endpoint=/three user=alice"),
	})
}
