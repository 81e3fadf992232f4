package client_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const plenty = "domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: 1000000000, window: 1d}]}\n"

// checker is what the benchmarks ask.
type checker interface {
	Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)
}

// BenchmarkCheck asks a node on loopback, which runs in this process too, from 64
// goroutines: by one call per check, and by the client's stream. The time is that of
// client and node together, on all processors.
func BenchmarkCheck(b *testing.B) {
	info := startNode(b, "n", plenty)
	plain, err := client.NewNode(info.GRPC)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	c, err := client.New(info.GRPC)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	run := func(callers int, c checker) func(b *testing.B) {
		return func(b *testing.B) {
			reqs := make([]*weirv1.RateLimitRequest, 1024)
			for i := range reqs {
				reqs[i] = request(fmt.Sprint("user-", i))
			}
			b.ReportAllocs()
			b.SetParallelism(callers)
			b.RunParallel(func(pb *testing.PB) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				for i := 0; pb.Next(); i++ {
					if r, err := c.Check(ctx, reqs[i%len(reqs)]); err != nil || r.GetSource() != weirv1.Source_SOURCE_OWNER {
						b.Errorf("%v, %v", r, err)
						return
					}
				}
			})
		}
	}
	for _, callers := range []int{1, 32} { // per processor
		b.Run(fmt.Sprintf("unary/%d", callers), run(callers, plain))
		b.Run(fmt.Sprintf("client/%d", callers), run(callers, c))
	}
}

// BenchmarkCheckAlone waits for each answer: what a check costs that has no company.
func BenchmarkCheckAlone(b *testing.B) {
	info := startNode(b, "n", plenty)
	plain, err := client.NewNode(info.GRPC)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = plain.Close() }()
	c, err := client.New(info.GRPC)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, kind := range []struct {
		name string
		checker
	}{{"unary", plain}, {"client", c}} {
		b.Run(kind.name, func(b *testing.B) {
			req := request("alice")
			b.ReportAllocs()
			for b.Loop() {
				if r, err := kind.Check(b.Context(), req); err != nil || r.GetSource() != weirv1.Source_SOURCE_OWNER {
					b.Fatalf("%v, %v", r, err)
				}
			}
		})
	}
}

// BenchmarkLeases decides checks of hot keys from lent tokens, on all processors: what
// it costs to have as many as one likes.
func BenchmarkLeases(b *testing.B) {
	n := newNetwork(b)
	startLender(n, 1e12)
	c, err := client.New("l:1", client.WithDialer(n.dial), client.WithoutDiscovery(), client.WithLeases(), client.WithTimeout(time.Minute))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, keys := range []int{1, 100} {
		for _, extra := range []bool{false, true} {
			name := fmt.Sprintf("keys=%d", keys)
			reqs := make([]*weirv1.RateLimitRequest, keys)
			for i := range reqs {
				reqs[i] = request(fmt.Sprint("user-", i))
				reqs[i].Endpoint = "/api/v1/posts"
				if extra {
					reqs[i].Attributes = map[string]string{"method": "GET", "plan": "free"}
				}
			}
			if extra {
				name += ",attributes"
			}
			b.Run(name, func(b *testing.B) {
				before := c.Stats()
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := 0; pb.Next(); i++ {
						if r, err := c.Check(context.Background(), reqs[i%len(reqs)]); err != nil || !r.GetAllowed() || client.Undecided(r) {
							b.Errorf("%v, %v", r, err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
				b.ReportMetric(float64(c.Stats().Answered-before.Answered)/float64(b.N)*1e6, "asked/million")
			})
		}
	}
}
