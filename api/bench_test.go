package api

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

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
			server, req := newFixture(b, benchRules).server(), request(bb.request)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := server.CheckRateLimit(b.Context(), req); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCheckRateLimitParallel is many callers of one limit each.
func BenchmarkCheckRateLimitParallel(b *testing.B) {
	server := newFixture(b, benchRules).server()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		req := request("user=alice endpoint=/one")
		for pb.Next() {
			if _, err := server.CheckRateLimit(b.Context(), req); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkCheckRateLimitBatch is a batch of 100 checks of one limit each.
func BenchmarkCheckRateLimitBatch(b *testing.B) {
	server, batch := newFixture(b, benchRules).server(), &weirv1.RateLimitBatchRequest{}
	for range 100 {
		batch.Requests = append(batch.Requests, request("user=alice endpoint=/one"))
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := server.CheckRateLimitBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkShouldRateLimit is Envoy's call with two descriptors.
func BenchmarkShouldRateLimit(b *testing.B) {
	server := envoyServer{Limiter: newFixture(b, benchRules).Limiter}
	req := &rlsv3.RateLimitRequest{Domain: "default", Descriptors: descriptors("user=alice endpoint=/one", "user=alice endpoint=/three")}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := server.ShouldRateLimit(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}
