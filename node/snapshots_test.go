package node

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/snapshot"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// startBuilt runs a node until the returned function is called.
func startBuilt(t testing.TB, opts Options) (n *node, stop func()) {
	t.Helper()
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan Info, 1), make(chan error, 1)
	go func() { ended <- n.run(ctx, func(i Info) { ready <- i }) }()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	return n, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		n.snapshots.finish()
		n.close()
	}
}

var perMonth = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 1000, Window: int64(30 * 24 * time.Hour)}

func monthlyKey(i int) ring.Key {
	return ring.Hasher{}.Key(binary.LittleEndian.AppendUint64(nil, uint64(i)))
}

// use takes tokens of each of so many keys.
func use(n *node, keys int, tokens int64) (left []int64) {
	const batch = 256
	groups, takes := make([]shard.Group, batch), make([]shard.Take, batch)
	for begin := 0; begin < keys; begin += batch {
		size := min(batch, keys-begin)
		for i := range size {
			takes[i] = shard.Take{Key: monthlyKey(begin + i), Limit: perMonth, Cost: tokens}
			groups[i] = shard.Group{Takes: takes[i : i+1]}
		}
		n.shard.Decide(groups[:size])
		for i := range size {
			left = append(left, takes[i].Decision.Remaining)
		}
	}
	return left
}

// A snapshot that cannot be written is in the log, in health and in a metric, until it can be.
func TestSnapshotThatCannotBeWritten(t *testing.T) {
	n, stop := startBuilt(t, testOptions(t))
	use(n, 100, 10)
	blocked := filepath.Join(n.opts.DataDir, snapshot.Name+".new", "x")
	if err := os.MkdirAll(blocked, 0o700); err != nil { // so that the temporary file cannot be made
		t.Fatal(err)
	}
	n.snapshots.note(n.snapshots.write(t.Context(), 0, false))
	if p := n.snapshots.problem(); !strings.Contains(p, n.opts.DataDir) || !strings.Contains(p, "not empty") {
		t.Errorf("health says %q", p)
	}
	if problems := strings.Join(n.Problems(), "\n"); !strings.Contains(problems, "the counters cannot be written") {
		t.Errorf("health says %q", problems)
	}
	if err := os.RemoveAll(filepath.Dir(blocked)); err != nil {
		t.Fatal(err)
	}
	n.snapshots.note(n.snapshots.write(t.Context(), 0, false))
	if p := n.snapshots.problem(); p != "" {
		t.Errorf("health says %q", p)
	}
	stop()
}

// TestSnapshotIsRestored stops a node and starts it again.
func TestSnapshotIsRestored(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	n, stop := startBuilt(t, opts)
	use(n, 5000, 10)
	stop()
	n, stop = startBuilt(t, opts)
	if left := use(n, 5000, 1); slices.Min(left) != 989 || slices.Max(left) != 989 {
		t.Errorf("%d to %d tokens are left, want 989", slices.Min(left), slices.Max(left))
	}
	stop()
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSnapshot writes 10,000,000 counters and restores them: the figures of docs/performance.md.
func BenchmarkSnapshot(b *testing.B) {
	const keys = 10_000_000
	opts := Options{ID: "a", GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", EtcdListen: "127.0.0.1:0", DataDir: b.TempDir()}
	n, stop := startBuilt(b, opts)
	use(n, keys, 1)
	measure := func(name string, f func() error) {
		began, cpu := time.Now(), cpuTime(b)
		if err := f(); err != nil {
			b.Fatal(err)
		}
		b.Logf("%s: %v, %v of a processor", name, time.Since(began).Round(time.Millisecond), (cpuTime(b) - cpu).Round(time.Millisecond))
	}
	for b.Loop() {
		measure("at a stop", func() error { return n.snapshots.write(b.Context(), 0, true) })
		slowest, done := slowestWhile(n, func() {
			measure("while it serves", func() error { return n.snapshots.write(b.Context(), time.Minute, false) })
		})
		b.Logf("of %d decisions meanwhile the slowest took %v, 99.99 %% at most %v", len(slowest), slowest[len(slowest)-1], slowest[len(slowest)*9999/10000])
		idle, _ := slowestWhile(n, func() { <-time.After(done) })
		b.Logf("of %d decisions without it the slowest took %v, 99.99 %% at most %v", len(idle), idle[len(idle)-1], idle[len(idle)*9999/10000])
	}
	mean, most := partitionTimes(b, n)
	b.Logf("a partition takes %v of a processor, the slowest %v", mean, most)
	b.Logf("%d counters, %d bytes: %.1f each", n.snapshots.counters.Load(), n.snapshots.bytes.Load(), float64(n.snapshots.bytes.Load())/keys)
	stop()
	measure("start and restore", func() error {
		n, stop = startBuilt(b, opts)
		return nil
	})
	if got := n.shard.Len(); got != keys {
		b.Errorf("%d counters were restored", got)
	}
	stop()
}

// partitionTimes returns the processor time of a partition for a snapshot, on average and at most. A check waits for at most that: the lock is
// let go after each 256 counters, but the goroutine that writes the snapshot may take it again before the one that waits.
func partitionTimes(b *testing.B, n *node) (mean, most time.Duration) {
	b.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return time.Duration(t.Nano())
	}
	var buf []byte
	var sum time.Duration
	for p := range n.snapshots.head.Partitions {
		before := used()
		_, buf, _, _ = n.owners.SnapshotCopies().Save(p, 0, buf[:0])
		took := used() - before
		sum += took
		most = max(most, took)
	}
	return sum / time.Duration(n.snapshots.head.Partitions), most
}

// slowestWhile returns how long decisions took while f ran, in ascending order, and how long that was.
func slowestWhile(n *node, f func()) (took []time.Duration, ran time.Duration) {
	began, end := time.Now(), make(chan struct{})
	go func() { defer close(end); f() }()
	for i := 0; ; i++ {
		select {
		case <-end:
			slices.Sort(took)
			return took, time.Since(began)
		default:
		}
		g := []shard.Group{{Takes: []shard.Take{{Key: monthlyKey(i * 7919 % 10_000_000), Limit: perMonth, Cost: 1}}}}
		at := time.Now()
		n.shard.Decide(g)
		took = append(took, time.Since(at))
	}
}
