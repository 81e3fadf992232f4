package bench

import (
	"encoding/json"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// load is what of the report of weir bench grpc is looked at.
type load struct {
	ChecksPerSecond float64 `json:"checks_per_second"`
	Errors          int64   `json:"errors"`
	Unsent          int64   `json:"unsent"`
	Latency         struct {
		P99 float64 `json:"p99"`
	} `json:"latency_us"`
}

// runLoad runs weir bench grpc on one node.
func runLoad(b *testing.B, n *process.Node, flags ...string) (l load) {
	args := append([]string{"bench", "grpc", "--json", "--target", n.GRPC, "--duration", "2s"}, flags...)
	out, err := exec.Command(process.Binary(b), args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		b.Fatalf("weir %v: %v: %s", args, err, exit.Stderr)
	}
	if err := json.Unmarshal(out, &l); err != nil {
		b.Fatalf("weir %v: %v", args, err)
	}
	if l.Errors > 0 {
		b.Fatalf("weir %v: %d errors", args, l.Errors)
	}
	return l
}

// BenchmarkForwardLatency reports what a hop adds to the 99th percentile of unary checks at
// half of the load that a node of three can do: in an open loop, at one node alone and at
// one of three, where two of three checks go to another.
func BenchmarkForwardLatency(b *testing.B) {
	one, three := startNodes(b, 1)[0], startNodes(b, 3)[0]
	rate := strconv.Itoa(int(runLoad(b, three).ChecksPerSecond / 2))
	var alone, forwarded, added []float64
	for b.Loop() {
		a, f := runLoad(b, one, "--rate", rate), runLoad(b, three, "--rate", rate)
		alone, forwarded = append(alone, a.Latency.P99), append(forwarded, f.Latency.P99)
		added = append(added, f.Latency.P99-a.Latency.P99)
	}
	b.ReportMetric(median(alone), "p99-one-node-µs")
	b.ReportMetric(median(forwarded), "p99-three-nodes-µs")
	b.ReportMetric(median(added), "p99-added-µs")
	b.ReportMetric(0, "ns/op")
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
