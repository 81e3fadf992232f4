package bench

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

// load is what of the report of weir bench grpc is looked at.
type load struct {
	ChecksPerSecond float64          `json:"checks_per_second"`
	Checks          int64            `json:"checks"`
	Errors          int64            `json:"errors"`
	Failures        map[string]int64 `json:"failures"`
	Unsent          int64            `json:"unsent"`
	KeysAsked       int64            `json:"keys_asked"`
	Latency         struct {
		P50 float64 `json:"p50"`
		P99 float64 `json:"p99"`
	} `json:"latency_us"`
	ClientCPU float64 `json:"client_cpu_us_per_check"`
	Servers   []struct {
		CPU float64 `json:"cpu_us_per_check"`
	} `json:"servers"`
	Client struct {
		Answered int64 `json:"answered"`
	} `json:"client"`
}

// cpu is the processor time of all servers per check, in microseconds.
func (l load) cpu() (sum float64) {
	for _, s := range l.Servers {
		sum += s.CPU
	}
	return sum
}

// mostErrors is the part of all checks that may stay without an answer: nodes refuse what
// would wait for too long, as it does where they are kept from the processors by others.
const mostErrors = 0.02

// runLoad runs weir bench grpc on nodes, for two seconds if flags do not say otherwise.
func runLoad(b *testing.B, nodes []*process.Node, flags ...string) (l load) {
	var targets, pids []string
	for _, n := range nodes {
		targets, pids = append(targets, n.GRPC), append(pids, strconv.Itoa(n.PID()))
	}
	args := append([]string{"bench", "grpc", "--json", "--target", strings.Join(targets, ","), "--server-pid", strings.Join(pids, ","), "--duration", "2s", "--timeout", "10s"}, flags...)
	out, err := exec.Command(process.Binary(b), args...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) { // 1: some were not answered
		b.Fatalf("weir %v: %v: %s", args, err, stderr(exit))
	}
	if err := json.Unmarshal(out, &l); err != nil {
		b.Fatalf("weir %v: %v", args, err)
	}
	if float64(l.Errors) > mostErrors*float64(l.Checks) {
		b.Fatalf("weir %v: %d checks were answered, and not %v", args, l.Checks, l.Failures)
	}
	return l
}

func stderr(exit *exec.ExitError) []byte {
	if exit == nil {
		return nil
	}
	return exit.Stderr
}

// BenchmarkForwardLatency reports what a hop adds to the 99th percentile of unary checks at half of the
// load that a node of three can do: in an open loop, at one node alone and at one of three, where two of
// three checks go to another. It also reports how long the nodes' threads waited for a processor, per
// check: the part that is due to a busy machine.
func BenchmarkForwardLatency(b *testing.B) {
	one, three := startNodes(b, 1), startNodes(b, 3)
	rate := strconv.Itoa(int(runLoad(b, three[:1]).ChecksPerSecond / 2))
	var alone, forwarded, added, middle, queued, queuedThree []float64
	run := func(nodes []*process.Node) (l load, queued float64) {
		before := waited(b, nodes)
		l = runLoad(b, nodes[:1], "--rate", rate)
		return l, float64((waited(b, nodes) - before).Nanoseconds()) / 1e3 / float64(l.Checks)
	}
	for b.Loop() {
		a, q := run(one)
		f, q3 := run(three)
		alone, forwarded = append(alone, a.Latency.P99), append(forwarded, f.Latency.P99)
		added = append(added, f.Latency.P99-a.Latency.P99)
		middle = append(middle, f.Latency.P50-a.Latency.P50)
		queued, queuedThree = append(queued, q), append(queuedThree, q3)
	}
	b.ReportMetric(median(alone), "p99-one-node-µs")
	b.ReportMetric(median(forwarded), "p99-three-nodes-µs")
	b.ReportMetric(median(added), "p99-added-µs")
	b.ReportMetric(median(middle), "p50-added-µs")
	b.ReportMetric(median(queued), "queued-one-node-µs")
	b.ReportMetric(median(queuedThree), "queued-three-nodes-µs")
	b.ReportMetric(0, "ns/op")
}

// waited is how long the threads of all these nodes have waited for a processor.
func waited(b *testing.B, nodes []*process.Node) (sum time.Duration) {
	for _, n := range nodes {
		sum += process.Waited(b, n.PID())
	}
	return sum
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
