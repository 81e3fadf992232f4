package shard

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// laid returns a sealed shard with the records of all partitions of s that Save returns, and how many counters
// they are of.
func laid(t *testing.T, s *Shard, outlive time.Duration) (restored *Shard, counters int) {
	t.Helper()
	restored = newShard(t)
	for p := range uint32(1021) {
		restored.Seal(p)
		records, n := s.Save(p, outlive, nil)
		restored.Reserve(p, len(records))
		counters += n
		if err := restored.Apply(p, records); err != nil {
			t.Fatal(err)
		}
		restored.Unseal(p)
	}
	return restored, counters
}

// Counters of every algorithm count on from where they were saved.
func TestSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 3000
		s := newShard(t)
		limits := []algorithms.Limit{perHour(10), tokenBucketPerHour(10), logPerHour(10), slidingBucketsPerHour(10)}
		for _, l := range limits {
			for i := range keys {
				ask(s, key(l.Algorithm.String(), i), l, int64(1+i%9))
			}
		}
		restored, n := laid(t, s, 0)
		if n != keys*len(limits) || restored.Len() != n {
			t.Errorf("%d counters were saved and %d are there, want %d", n, restored.Len(), keys*len(limits))
		}
		for _, l := range limits {
			for i := range keys {
				k := key(l.Algorithm.String(), i)
				if a, b := ask(s, k, l, 1), ask(restored, k, l, 1); a.Remaining != b.Remaining || a.ResetAt != b.ResetAt || a.Allowed != b.Allowed {
					t.Fatalf("%v, key %d: %+v, was %+v", l.Algorithm, i, b, a)
				}
			}
		}
	})
}

// What is over soon is not saved, and a partition's clock is always.
func TestSaveWhatOutlives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		long, short := perHour(10), perHour(10)
		short.Window = int64(5 * time.Minute)
		log := logPerHour(10)
		log.Window = int64(5 * time.Minute)
		for i := range 100 {
			ask(s, key("long", i), long, 10)
			ask(s, key("short", i), short, 10)
			ask(s, key("log", i), log, 10)
		}
		restored, n := laid(t, s, 20*time.Minute)
		if n != 100 || restored.Len() != 100 {
			t.Errorf("%d counters were saved and %d are there, want 100", n, restored.Len())
		}
		if d := ask(restored, key("long", 1), long, 1); d.Allowed {
			t.Errorf("a limit that was used up allows one more: %+v", d)
		}
		if records, n := newShard(t).Save(7, 0, nil); n != 0 || len(records) == 0 {
			t.Errorf("a partition without counters has %d, in %d bytes; want the clock", n, len(records))
		}
	})
}

// Save runs while callers take, and counters come and go.
func TestSaveWhileCounting(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: 64 << 20})
	hour := perHour(1 << 40)
	for i := range 5_000 {
		ask(s, key("stays", i), hour, 7)
	}
	var callers sync.WaitGroup
	stop := make(chan struct{})
	for c := range 2 {
		callers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					k := key("new", i%4000*2+c)
					s.Decide([]Group{{Takes: []Take{{Key: k, Limit: hour, Cost: 1}}, Reset: i%3 == 0}})
				}
			}
		})
	}
	for range 5 {
		records, n := s.Save(0, 0, nil)
		restored := newShardOf(t, Config{Partitions: 1, MaxBytes: 256 << 20})
		restored.Seal(0)
		if err := restored.Apply(0, records); err != nil {
			t.Fatal(err)
		}
		restored.Unseal(0)
		if n < 5_000 {
			t.Fatalf("%d counters, of at least 5000", n)
		}
		for i := range 5_000 {
			if d := ask(restored, key("stays", i), hour, 0); d.Remaining != 1<<40-7 {
				t.Fatalf("key %d: %d remain", i, d.Remaining)
			}
		}
	}
	close(stop)
	callers.Wait()
}

// Reserve gives a table its size before it is filled in the order of the keys.
func TestReserve(t *testing.T) {
	const keys = 20_000
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: 64 << 20})
	for i := range keys {
		ask(s, key("k", i), perHour(10), 1)
	}
	records, _ := s.Save(0, 0, nil)
	restored := newShardOf(t, Config{Partitions: 1, MaxBytes: 64 << 20})
	restored.Seal(0)
	restored.Reserve(0, len(records))
	table := &restored.partitions[0].table
	reserved := table.reserved
	if most := table.size() * fullNum / fullDen; most < keys || most > 2*keys {
		t.Errorf("there is room for %d counters, of %d", most, keys)
	}
	if err := restored.Apply(0, records); err != nil {
		t.Fatal(err)
	}
	if table.reserved != reserved || table.moving != nil || table.n != keys {
		t.Errorf("the table has grown from %d to %d pages, and has %d counters", reserved, table.reserved, table.n)
	}
	restored.Reserve(0, 10*len(records))
	if table.reserved != reserved {
		t.Error("a table with counters was made larger")
	}
	small := newSmallShard(t)
	small.Seal(0)
	small.Reserve(0, len(records)) // there is no memory for them
	if err := small.Apply(0, records); err != nil || small.Len() == 0 || small.Len() > pageSlots {
		t.Errorf("%d counters, %v", small.Len(), err)
	}
}
