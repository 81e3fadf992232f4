package api

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

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
		m, err := answer(b.Context(), wire.NewPart(message))
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
			m, err := f.Limiter.check(b.Context(), wire.NewPart(message))
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

// BenchmarkTopKeys is the time of checks with the lists of the busiest keys, as a share of the time without them. Each
// loop measures both in turn. It reports the median of these shares and its standard error.
func BenchmarkTopKeys(b *testing.B) {
	single := func(f *fixture) wire.Answerer { return f.Limiter.check }
	batch := func(f *fixture) wire.Answerer { return f.checkBatch }
	for _, bb := range []struct {
		name           string
		answer         func(*fixture) wire.Answerer
		checks, atOnce int // of a call, and calls of a turn
	}{{"unary", single, 1, 2000}, {"batch of 100", batch, 100, 40}} {
		b.Run(bb.name, func(b *testing.B) {
			messages := callsOf(b, bb.checks)
			call := func(f *fixture) func() {
				answer := bb.answer(f)
				return func() { callAll(b, answer, messages, bb.atOnce) }
			}
			measureInTurn(b, call(newFixture(b, benchRules)), call(newFixtureWith(b, benchRules, nil)))
		})
	}
	b.Run("recorded", func(b *testing.B) { // all of the first 500
		const first = 500
		messages := callsOf(b, 1)
		var more []float64
		for b.Loop() {
			with, without := single(newFixture(b, benchRules)), single(newFixtureWith(b, benchRules, nil))
			a, b0 := timeOf(func() { callAll(b, with, messages, first) }), timeOf(func() { callAll(b, without, messages, first) })
			more = append(more, float64(a-b0)/first)
		}
		reportMedian(b, more, "ns-more/check")
	})
}

// callAll makes calls, one after the other.
func callAll(b *testing.B, answer wire.Answerer, messages [][]byte, calls int) {
	for i := range calls {
		m, err := answer(b.Context(), wire.NewPart(messages[i%len(messages)]))
		if err != nil {
			b.Fatal(err)
		}
		m.Free()
	}
}

func timeOf(do func()) time.Duration {
	start := time.Now()
	do()
	return time.Since(start)
}

// measureInTurn reports how long with takes, as a share of what without takes. Each loop measures both twice, in the order
// that makes a trend no difference. It reports the median of the shares and its standard error.
func measureInTurn(b *testing.B, with, without func()) {
	var shares []float64
	for b.Loop() {
		a, c := timeOf(with), timeOf(without)
		c += timeOf(without)
		a += timeOf(with)
		shares = append(shares, float64(a)/float64(c))
	}
	reportMedian(b, shares, "with/without")
}

// callsOf returns encoded calls, each with that number of checks. Each check is of one of 1024 callers.
func callsOf(b *testing.B, checks int) (messages [][]byte) {
	random := rand.New(rand.NewPCG(1, 2))
	callers := rand.NewZipf(random, 1.1, 1, 1023)
	for range 64 {
		batch := &weirv1.RateLimitBatchRequest{}
		for range checks {
			batch.Requests = append(batch.Requests, request("user=u"+strconv.FormatUint(callers.Uint64(), 10)+" endpoint=/one"))
		}
		if checks == 1 {
			messages = append(messages, apitest.Marshal(b, batch.GetRequests()[0]))
		} else {
			messages = append(messages, apitest.Marshal(b, batch))
		}
	}
	return messages
}

// reportMedian reports the median of a distribution and its standard error, which is about 1.25 of the mean's.
func reportMedian(b *testing.B, of []float64, unit string) {
	slices.Sort(of)
	n := float64(len(of))
	quartiles := of[len(of)*3/4] - of[len(of)/4]
	b.ReportMetric(of[len(of)/2], unit)
	b.ReportMetric(1.253*quartiles/1.349/math.Sqrt(n), "±")
}
