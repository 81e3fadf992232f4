package api

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"

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
func benchmark(b *testing.B, answer wire.Answerer, req proto.Message) {
	message := apitest.Marshal(b, req)
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
	f, message := newFixture(b, benchRules), apitest.Marshal(b, request("user=alice endpoint=/one"))
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
