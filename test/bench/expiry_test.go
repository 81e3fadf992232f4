package bench

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/weirlimit/weir/test/process"
)

var expiryKeys = flag.Int("expiry-keys", 10_000_000, "keys of BenchmarkExpiry")

// expiryWindow is that of the domain "short". A sliding window is over after two.
const expiryWindow = 15 * time.Second

// BenchmarkExpiry measures the memory of a node before the first check, after checks of a thousand keys
// ("warm": with the buffers of its connections, and the garbage of its requests), about millions, and a
// minute after all of those have expired, while a few checks go on.
func BenchmarkExpiry(b *testing.B) {
	n := startNodes(b, 1)[0]
	ask := func(keys int, flags ...string) load {
		return runLoad(b, []*process.Node{n}, append([]string{"--domain", "short", "--mode", "stream", "--distribution", "sequential", "--keys", strconv.Itoa(keys)}, flags...)...)
	}
	cold := resident(b, n.PID())
	ask(1000, "--duration", "3s")
	warm := resident(b, n.PID())
	// One round of all keys: each is asked about once.
	l := ask(*expiryKeys, "--rate", "400000", "--duration", (time.Duration(*expiryKeys) * time.Second / 400_000).String())
	full := resident(b, n.PID())
	ask(1000, "--rate", "1000", "--batch", "10", "--duration", (2*expiryWindow + time.Minute).String())
	after := resident(b, n.PID())
	mib := func(bytes int) float64 { return float64(bytes) / (1 << 20) }
	b.ReportMetric(float64(l.KeysAsked), "keys")
	b.ReportMetric(mib(cold), "cold-MiB")
	b.ReportMetric(mib(warm), "warm-MiB")
	b.ReportMetric(mib(full), "full-MiB")
	b.ReportMetric(mib(after), "after-MiB")
	b.ReportMetric(float64(after)/float64(warm), "x-warm")
	b.ReportMetric(float64(after)/float64(cold), "x-cold")
	b.ReportMetric(0, "ns/op")
}

// resident is what a process has in memory, in bytes.
func resident(b *testing.B, pid int) int {
	p, err := procfs.NewProc(pid)
	if err != nil {
		b.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		b.Fatal(err)
	}
	return stat.ResidentMemory()
}
