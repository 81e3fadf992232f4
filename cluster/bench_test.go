package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// BenchmarkForward asks one node for counters that another owns, over loopback
// TCP: what a hop costs both, in processor time of this process, and how many
// questions travel together.
func BenchmarkForward(b *testing.B) {
	for _, callers := range []int{1, 8, 32} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			newShard := func() *shard.Shard {
				s, err := shard.New(shard.Config{Partitions: uint32(ring.DefaultParams.Partitions), MaxCounters: 1 << 20, Metrics: prometheus.NewRegistry()})
				if err != nil {
					b.Fatal(err)
				}
				return s
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			owner := &testNode{shard: newShard()}
			links := NewServer(owner, NewPromises(true, true))
			defer links.Close()
			server := grpc.NewServer(grpc.Creds(links.Credentials(insecure.NewCredentials())))
			go func() { _ = server.Serve(l) }()
			defer server.Stop()
			r := NewRouter(RouterConfig{Self: "a", Promises: NewPromises(true, true), Local: newShard(), Dial: Dial, AttemptTimeout: time.Second, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
			defer r.Close()
			v, err := nextView(ring.DefaultParams, nil, []Member{{ID: "b", Address: l.Addr().String()}})
			if err != nil {
				b.Fatal(err)
			}
			r.SetView(v)
			for !r.Reaches("b") {
				runtime.Gosched()
			}
			keys := make([]ring.Key, 1<<16)
			for i := range keys {
				keys[i] = ring.Hasher{}.Key(fmt.Append(nil, i))
			}
			b.SetParallelism(max(1, callers/2))
			b.ReportAllocs()
			before := processorTime(b)
			owner.frames.Store(0)
			b.RunParallel(func(pb *testing.PB) {
				groups := []shard.Group{{Takes: make([]shard.Take, 1)}}
				for i := 0; pb.Next(); i++ {
					groups[0].Takes[0] = take(keys[i%len(keys)], 1<<30, 1)
					r.Decide(context.Background(), groups)
					if groups[0].Takes[0].Source != shard.Owner {
						b.Error("unanswered")
						return
					}
				}
			})
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(b.N)/float64(owner.frames.Load()), "questions/frame")
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
