package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// BenchmarkForward asks one node for counters that another owns, over loopback
// TCP: what a hop costs both, in processor time of this process, and how many
// requests travel together.
func BenchmarkForward(b *testing.B) {
	for _, callers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { forward(b, callers, nil, 0) })
	}
}

// BenchmarkForwardTraced is BenchmarkForward of 8 callers with that share of checks traced, on both nodes. An exporter of batches
// drops the spans.
func BenchmarkForwardTraced(b *testing.B) {
	for _, share := range []float64{0, 0.01, 1} {
		b.Run(fmt.Sprintf("share=%v", share), func(b *testing.B) {
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
			b.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
			forward(b, 8, provider.Tracer("bench"), share)
		})
	}
}

func forward(b *testing.B, callers int, tracer trace.Tracer, share float64) {
	r, owner := newTracedPair(b, tracer)
	keys := make([]ring.Key, 1<<16)
	for i := range keys {
		keys[i] = ring.Hasher{}.Key(fmt.Append(nil, i))
	}
	b.SetParallelism(max(1, callers/2))
	b.ReportAllocs()
	before := processorTime(b)
	owner.frames.Store(0)
	var caller atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		groups := []shard.Group{{Takes: make([]shard.Take, 1)}}
		begin := int(caller.Add(1)) * len(keys) / callers // no two ask for one key at a time
		for i := begin; pb.Next(); i++ {
			groups[0].Takes[0] = take(keys[i%len(keys)], 1<<30, 1)
			ctx, span := context.Background(), trace.Span(nil)
			if share > 0 && rand.Float64() < share {
				ctx, span = tracer.Start(ctx, "check")
			}
			r.Decide(ctx, groups)
			if span != nil {
				span.End()
			}
			if groups[0].Takes[0].Source != shard.Owner {
				b.Error("undecided")
				return
			}
		}
	})
	b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(b.N)/float64(owner.frames.Load()), "requests/frame")
}

// newPair returns a router of a node that owns nothing, and the node that owns all.
func newPair(b *testing.B) (*Router, *testNode) { return newTracedPair(b, nil) }

// newTracedPair is newPair of nodes that make spans.
func newTracedPair(b *testing.B, tracer trace.Tracer) (*Router, *testNode) {
	newShard := func() *shard.Shard {
		s, err := shard.New(shard.Config{Partitions: uint32(ring.DefaultParams.Partitions), MaxBytes: 64 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	s := newShard()
	owner := &testNode{shard: s, local: s}
	peers := NewServer(owner, NewRouter(RouterConfig{Self: "b", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Tracer: tracer, Metrics: prometheus.NewRegistry()}), newTestGreeter("b", 1))
	b.Cleanup(peers.Close)
	server := grpc.NewServer(grpc.Creds(peers.Credentials(insecure.NewCredentials())))
	go func() { _ = server.Serve(l) }()
	b.Cleanup(server.Stop)
	r := NewRouter(RouterConfig{Self: "a", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Tracer: tracer, Local: newShard(), Dial: overTCP, AttemptTimeout: time.Second,
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	b.Cleanup(r.Close)
	r.SetView(routingOf(b, nil, []Member{{ID: "b", Address: l.Addr().String()}}))
	for !r.Reaches("b") {
		runtime.Gosched()
	}
	return r, owner
}

// BenchmarkHot asks one node for one counter that another owns, over and over: what it
// costs to answer from what is remembered or lent, and how many of 1000 the owner is
// asked for.
func BenchmarkHot(b *testing.B) {
	for name, limit := range map[string]int64{"denied": 1, "lent": 1 << 31} {
		b.Run(name, func(b *testing.B) {
			r, owner := newPair(b)
			b.SetParallelism(16)
			b.ReportAllocs()
			before := processorTime(b)
			b.RunParallel(func(pb *testing.PB) {
				groups := []shard.Group{{Takes: make([]shard.Take, 1)}}
				for pb.Next() {
					groups[0].Takes[0] = take(ring.Key{}, limit, 1)
					r.Decide(context.Background(), groups)
					if groups[0].Takes[0].Source == shard.Undecided {
						b.Error("undecided")
						return
					}
				}
			})
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(1000*float64(owner.takes.Load())/float64(b.N), "asked/1000")
		})
	}
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOwned asks a node for what it owns itself: one check, and a batch.
func BenchmarkOwned(b *testing.B) {
	for _, size := range []int{1, 100} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			r, _ := newPair(b)
			r.SetView(routingOf(b, r.View(), []Member{{ID: "a", Address: "x"}}))
			groups := make([]shard.Group, size)
			for i := range groups {
				groups[i].Takes = []shard.Take{take(ring.Hasher{}.Key(fmt.Append(nil, i)), 1<<30, 1)}
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Decide(context.Background(), groups)
			}
		})
	}
}
