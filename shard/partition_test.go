package shard

import (
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// A probe waits for every partition's lock, and only for that.
func TestProbeAsksEveryPartition(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 3, MaxBytes: MinBytes(3)})
	for i := range s.partitions {
		s.partitions[i].mu.Lock()
		done := make(chan struct{})
		go func() { defer close(done); s.Probe() }()
		select {
		case <-done:
			t.Errorf("answered although the lock of partition %d is stuck", i)
		case <-time.After(20 * time.Millisecond):
		}
		s.partitions[i].mu.Unlock()
		<-done
	}
}

func TestPartitionsFillCacheLines(t *testing.T) {
	if n := unsafe.Sizeof(partition{}); n != 128 {
		t.Errorf("%d bytes, want 128", n)
	}
	if n := unsafe.Offsetof(partition{}.table) + unsafe.Offsetof(table{}.n); n != 64 {
		t.Errorf("what every decision looks at takes %d bytes, want 64", n)
	}
}

func TestHeatAndCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
		a, b := Take{Key: in(s, 0, 0), Limit: perHour(10), Cost: 1}, Take{Key: in(s, 1, 0), Limit: logPerHour(10), Cost: 1}
		s.Decide([]Group{{Takes: []Take{a}}, {Takes: []Take{a, b}}, {Takes: []Take{a}}})
		if s.Heat(0) != 3 || s.Heat(1) != 1 || s.Count(0) != 1 || s.Count(1) != 1 {
			t.Errorf("heat %d and %d, counters %d and %d", s.Heat(0), s.Heat(1), s.Count(0), s.Count(1))
		}
		if s.sweep(&s.partitions[0]); s.Heat(0) != 1 {
			t.Errorf("a round later: heat %d", s.Heat(0))
		}
	})
}
