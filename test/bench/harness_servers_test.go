package bench

import (
	"bufio"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }

// servers are what a benchmark asks, in turn.
type servers struct {
	clients   []conn
	addresses []string
	pids      []int
	nodes     []*process.Node // none of a baseline
}

// conn asks by one connection.
type conn struct {
	weir  weirv1.RateLimiterClient
	envoy rlsv3.RateLimitServiceClient
}

// plaintext is how servers without TLS are asked.
var plaintext = grpc.WithTransportCredentials(insecure.NewCredentials())

func (s *servers) add(b *testing.B, address string, pid int, options ...grpc.DialOption) {
	const connections = 2
	for range connections {
		c, err := grpc.NewClient(address, options...)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		s.clients = append(s.clients, conn{weirv1.NewRateLimiterClient(c), rlsv3.NewRateLimitServiceClient(c)})
	}
	s.addresses, s.pids = append(s.addresses, address), append(s.pids, pid)
}

// addNode adds a node that is asked.
func (s *servers) addNode(b *testing.B, n *process.Node) {
	s.add(b, n.GRPC, n.PID(), plaintext)
	s.nodes = append(s.nodes, n)
}

var baselineLine = regexp.MustCompile(`^weir baseline serves gRPC on (\S+) `)

// startBaseline starts the bare server in a process of its own.
func startBaseline(b *testing.B, settings string) *servers {
	return startBareServer(b, []string{"--settings", settings}, plaintext)
}

// startBareServer does so with those flags, and asks it with those options.
func startBareServer(b *testing.B, flags []string, options ...grpc.DialOption) *servers {
	cmd := exec.Command(process.Binary(b), append([]string{"bench", "baseline"}, flags...)...)
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
	m := baselineLine.FindStringSubmatch(line)
	if m == nil {
		b.Fatalf("the baseline did not start: %q", line)
	}
	s := &servers{}
	s.add(b, m[1], cmd.Process.Pid, options...)
	return s
}

// benchRules: no user reaches the limits of the first domain, all soon reach that of the second, and the
// windows of the third soon end.
var benchRules = map[string]string{
	"default.yaml": "domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: 1000000000, window: 1d}]}\n",
	"flood.yaml":   "domain: flood\nrules:\n  - {id: few, per: [user], limits: [{limit: 10, window: 1d}]}\n",
	"short.yaml":   "domain: short\nrules:\n  - {id: soon, per: [user], limits: [{limit: 1000, window: 15s}]}\n",
}

// joinPatience is how long a cluster may take until all nodes are its members, and have their partitions.
const joinPatience = time.Minute

// startNodes starts a cluster of so many nodes.
func startNodes(b *testing.B, size int, flags ...string) []*process.Node {
	rules := b.TempDir()
	for name, text := range benchRules {
		if err := os.WriteFile(filepath.Join(rules, name), []byte(text), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	etcd := process.StartEtcd(b)
	var nodes []*process.Node
	for range size {
		nodes = append(nodes, process.Start(b, append([]string{"--etcd", etcd.Endpoint, "--rules", rules, "--peer-timeout", "1s"}, flags...)...))
	}
	process.AwaitSettled(b, joinPatience, nodes...) // else it is measured what copies cost that partitions move with
	return nodes
}

// startWeir starts a cluster of so many nodes, all of which are asked.
func startWeir(b *testing.B, size int) *servers {
	s := &servers{}
	for _, n := range startNodes(b, size) {
		s.addNode(b, n)
	}
	return s
}

// cpu is the processor time that all servers have used.
func (s *servers) cpu(b *testing.B) (sum time.Duration) {
	for _, pid := range s.pids {
		sum += process.CPU(b, pid)
	}
	return sum
}

// reportBatching reports how many checks a message between two nodes carries.
func (s *servers) reportBatching(b *testing.B) {
	var answered, frames float64
	for _, n := range s.nodes {
		resp, err := http.Get("http://" + n.HTTP + "/metrics")
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
		b.ReportMetric(answered/frames, "checks/message")
	}
}
