package bench

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }

var floorLine = regexp.MustCompile(`^weir floor serves gRPC on (\S+) `)

// startFloor starts the bare server in a process of its own.
func startFloor(b *testing.B, settings string) *servers {
	cmd := exec.Command(process.Binary(b), "bench", "floor", "--settings", settings)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	m := floorLine.FindStringSubmatch(line)
	if m == nil {
		b.Fatalf("the floor did not start: %q", line)
	}
	s := &servers{}
	s.add(b, m[1], cmd.Process.Pid)
	return s
}

// servers are what a benchmark asks, in turn.
type servers struct {
	clients []weirv1.RateLimiterClient
	pids    []int
	metrics []string // URLs

	addresses []string
}

func (s *servers) add(b *testing.B, address string, pid int) {
	const connections = 2
	for range connections {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = conn.Close() })
		s.clients = append(s.clients, weirv1.NewRateLimiterClient(conn))
	}
	s.pids = append(s.pids, pid)
	s.addresses = append(s.addresses, address)
}

// reportBatching reports how many questions a message between two nodes carries.
func (s *servers) reportBatching(b *testing.B) {
	var answered, frames float64
	for _, url := range s.metrics {
		resp, err := http.Get(url)
		if err != nil {
			b.Fatal(err)
		}
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			b.Fatal(err)
		}
		for _, m := range families["weir_forwarded_total"].GetMetric() {
			answered += m.GetCounter().GetValue()
		}
		for _, m := range families["weir_forwarded_frames_total"].GetMetric() {
			frames += m.GetCounter().GetValue()
		}
	}
	if frames > 0 {
		b.ReportMetric(answered/frames, "questions/message")
	}
}

func (s *servers) cpu(b *testing.B) (sum time.Duration) {
	for _, pid := range s.pids {
		sum += process.CPU(b, pid)
	}
	return sum
}

// startWeir starts a cluster of so many nodes.
func startWeir(b *testing.B, size int) *servers {
	rules := filepath.Join(b.TempDir(), "rules.yaml")
	const text = "domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: 1000000000, window: 1d}]}\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	etcd := process.StartEtcd(b)
	var nodes []*process.Node
	s := &servers{}
	for range size {
		n := process.Start(b, "--etcd", etcd.Endpoint, "--rules", rules, "--peer-timeout", "1s")
		nodes = append(nodes, n)
		s.metrics = append(s.metrics, "http://"+n.HTTP+"/metrics")
		s.add(b, n.GRPC, n.PID())
	}
	process.AwaitMembers(b, 10*time.Second, nodes...)
	return s
}

// users are the identifiers that are asked about, uniformly.
const users = 100_000

// callers is how many calls are under way at once, per node.
const callers = 64

// caller asks one thing after the other. The function that it returns is called
// once in the end.
type caller func(clients []weirv1.RateLimiterClient, number int) (ask func(i int) error, end func() error, err error)

// calls is a caller that asks the servers in turn, by a call each time.
func calls(call func(c weirv1.RateLimiterClient, i int) error) caller {
	return func(clients []weirv1.RateLimiterClient, _ int) (ask func(int) error, end func() error, err error) {
		return func(i int) error { return call(clients[i%len(clients)], i) }, func() error { return nil }, nil
	}
}

// measure asks b.N times and reports the processor time of all servers per check.
func measure(b *testing.B, s *servers, callers, perCall int, start caller) float64 {
	var next atomic.Int64
	before := s.cpu(b)
	b.SetParallelism(max(1, callers/runtime.GOMAXPROCS(0)))
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		mine := int(next.Add(1))
		ask, end, err := start(s.clients, mine)
		for i := mine * 7919; err == nil && pb.Next(); i++ {
			err = ask(i)
		}
		if err == nil {
			err = end()
		}
		if err != nil {
			b.Error(err)
		}
	})
	b.StopTimer()
	s.reportBatching(b)
	perCheck := float64((s.cpu(b) - before).Microseconds()) / float64(b.N*perCall)
	b.ReportMetric(perCheck, "cpu-µs/check")
	b.ReportMetric(float64(b.N*perCall)/b.Elapsed().Seconds(), "checks/s")
	b.ReportMetric(0, "ns/op") // of one of many callers: says nothing
	return perCheck
}

func request(i int) *weirv1.RateLimitRequest {
	return &weirv1.RateLimitRequest{Identifier: fmt.Sprintf("user-%06d", i%users), IdentifierType: "user", Endpoint: "/api/v1/posts"}
}

func unary(c weirv1.RateLimiterClient, i int) error {
	resp, err := c.CheckRateLimit(context.Background(), request(i))
	if err == nil && (!resp.GetAllowed() || resp.GetSource() != weirv1.Source_SOURCE_OWNER) {
		err = fmt.Errorf("unexpected answer %v", resp)
	}
	return err
}

const batchSize = 100

// requests returns those of the i-th batch.
func requests(i int) []*weirv1.RateLimitRequest {
	all := make([]*weirv1.RateLimitRequest, batchSize)
	for j := range all {
		all[j] = request(i*batchSize + j)
	}
	return all
}

func batch(c weirv1.RateLimiterClient, i int) error {
	resp, err := c.CheckRateLimitBatch(context.Background(), &weirv1.RateLimitBatchRequest{Requests: requests(i)})
	if err == nil && len(resp.GetResponses()) != batchSize {
		err = fmt.Errorf("%d answers", len(resp.GetResponses()))
	}
	return err
}

const (
	streamCallers = 6 // streams, per node
	window        = 8 // messages of a stream under way
)

// stream is a caller that keeps a window full on a stream to one server.
func stream(clients []weirv1.RateLimiterClient, number int) (ask func(int) error, end func() error, err error) {
	s, err := clients[number%len(clients)].StreamRateLimits(context.Background())
	if err != nil {
		return nil, nil, err
	}
	underWay := 0
	receive := func() error {
		underWay--
		resp, err := s.Recv()
		if err == nil && (len(resp.GetResponses()) != batchSize || resp.GetResponses()[0].GetSource() != weirv1.Source_SOURCE_OWNER) {
			err = fmt.Errorf("unexpected answer %v", resp)
		}
		return err
	}
	ask = func(i int) error {
		if underWay == window {
			if err := receive(); err != nil {
				return err
			}
		}
		underWay++
		return s.Send(&weirv1.StreamRateLimitsRequest{Id: uint64(i), Requests: requests(i)})
	}
	end = func() error {
		err := s.CloseSend()
		for err == nil && underWay > 0 {
			err = receive()
		}
		return err
	}
	return ask, end, nil
}

// BenchmarkCPUPerCheck reports the processor time of all servers per check: of the
// floor with default settings and with those of a node, of one node, and of three nodes of which any is asked: each by as many
// callers as the one, or by as many in all, so that the work is cut finer. "x-floor" is the
// ratio to the floor, "x-one-node" that to one node, of the same run.
func BenchmarkCPUPerCheck(b *testing.B) {
	bare, tuned := startFloor(b, "default"), startFloor(b, "node")
	one, three := startWeir(b, 1), startWeir(b, 3)
	for _, bc := range []struct {
		name             string
		callers, perCall int
		start            caller
	}{
		{"unary", callers, 1, calls(unary)}, {"batch100", callers, batchSize, calls(batch)},
		{"stream100", streamCallers, batchSize, stream},
	} {
		var floorCost, tunedCost, oneCost float64
		b.Run(bc.name+"/floor", func(b *testing.B) { floorCost = measure(b, bare, bc.callers, bc.perCall, bc.start) })
		b.Run(bc.name+"/floor-tuned", func(b *testing.B) { tunedCost = measure(b, tuned, bc.callers, bc.perCall, bc.start) })
		b.Run(bc.name+"/one-node", func(b *testing.B) {
			oneCost = measure(b, one, bc.callers, bc.perCall, bc.start)
			b.ReportMetric(oneCost/tunedCost, "x-floor-tuned")
			b.ReportMetric(oneCost/floorCost, "x-floor")
		})
		for _, all := range []int{3 * bc.callers, bc.callers} {
			b.Run(fmt.Sprintf("%s/three-nodes/callers=%d", bc.name, all), func(b *testing.B) {
				cost := measure(b, three, all, bc.perCall, bc.start)
				b.ReportMetric(cost/floorCost, "x-floor")
				b.ReportMetric(cost/oneCost, "x-one-node")
			})
		}
	}
}
