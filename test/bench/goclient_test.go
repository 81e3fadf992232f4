package bench

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// BenchmarkClient compares the Go client with plain calls: 64 callers that wait for each
// answer, and one, on one node and on three. It reports the processor time of all servers
// and that of this process, the client's, per check.
func BenchmarkClient(b *testing.B) {
	type checker interface {
		Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)
	}
	for _, nodes := range []struct {
		name string
		size int
	}{{"one-node", 1}, {"three-nodes", 3}} {
		s := startWeir(b, nodes.size)
		plain, err := client.NewNode(s.nodes[0].GRPC)
		if err != nil {
			b.Fatal(err)
		}
		streams, err := client.New(s.nodes[0].GRPC)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = plain.Close()
			_ = streams.Close()
		})
		for _, callers := range []int{1, callers} {
			for _, kind := range []struct {
				name string
				checker
			}{{"calls", plain}, {"client", streams}} {
				name := map[bool]string{true: "alone", false: "callers"}[callers == 1]
				b.Run(nodes.name+"/"+kind.name+"/"+name, func(b *testing.B) { measureClient(b, s, callers, kind.Check) })
			}
		}
	}
}

// BenchmarkLeases has the Go client ask three nodes about a hundred hot keys, with leases, as
// weir bench does it: most checks are decided in the client.
func BenchmarkLeases(b *testing.B) {
	nodes := startNodes(b, 3)
	var rate, servers, client, asked []float64
	for b.Loop() {
		l := runLoad(b, nodes, "--via", "leases", "--keys", "100", "--callers", strconv.Itoa(runtime.GOMAXPROCS(0)), "endpoint=/api/v1/posts")
		rate, servers, client = append(rate, l.ChecksPerSecond), append(servers, l.cpu()), append(client, l.ClientCPU)
		asked = append(asked, float64(l.Client.Answered)/float64(l.Checks)*1e6)
	}
	b.ReportMetric(median(rate), "checks/s")
	b.ReportMetric(median(servers), "server-cpu-µs/check")
	b.ReportMetric(median(client), "client-cpu-µs/check")
	b.ReportMetric(median(asked), "asked/million")
	b.ReportMetric(0, "ns/op")
}

func measureClient(b *testing.B, s *servers, callers int, check func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)) {
	if callers == 1 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that there is only one
	}
	var next atomic.Int64
	own := process.CPU(b, os.Getpid())
	before := s.cpu(b)
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
			if r, err := check(ctx, request(i)); err != nil || r.GetSource() != weirv1.Source_SOURCE_OWNER {
				b.Errorf("%v, %v", r, err)
				return
			}
		}
	})
	b.StopTimer()
	perCheck := func(total time.Duration) float64 { return float64(total.Microseconds()) / float64(b.N) }
	b.ReportMetric(perCheck(s.cpu(b)-before), "server-cpu-µs/check")
	b.ReportMetric(perCheck(process.CPU(b, os.Getpid())-own), "client-cpu-µs/check")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
	b.ReportMetric(0, "ns/op") // of one of many callers: says nothing
}
