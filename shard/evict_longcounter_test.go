package shard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Among many exhausted long counters, a flood of fresh ones evicts only fresh ones: the exhausted ones are the last to go.
func TestFloodEvictsExhaustedLongCountersLast(t *testing.T) {
	for _, perHour := range []func(int64) algorithms.Limit{logPerHour, slidingBucketsPerHour} {
		t.Run(perHour(1).Algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const exhausted, fresh = 200, 10
				each := int64(longOverhead + 4*16)
				s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: (exhausted + fresh) * each})
				for i := range exhausted {
					ask(s, key("exhausted", i), perHour(10), 10)
				}
				for i := range 1000 {
					ask(s, key("fresh", i), perHour(10), 1)
				}
				freed := 0
				for i := range exhausted {
					if ask(s, key("exhausted", i), perHour(10), 1).Allowed {
						freed++
					}
				}
				if freed > 0 || s.Len() != exhausted+fresh {
					t.Errorf("%d of %d exhausted counters were evicted among fresh ones; %d counters", freed, exhausted, s.Len())
				}
			})
		})
	}
}

// Of long counters of any use, those that have used less make room first, and expired ones before them.
func TestLongVictimsAreTheLeastUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 160 // ten of each sixteenth of the limit
		each := int64(longOverhead + 4*16)
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: (n + 10) * each})
		second := logPerHour(16)
		second.Window = int64(time.Second)
		for i := range 10 {
			ask(s, key("expired", i), second, 16)
		}
		for i := n - 1; i >= 0; i-- { // the least used come last
			ask(s, key("used", i), logPerHour(16), int64(1+i/10))
		}
		time.Sleep(2 * time.Second)
		for gone := range n {
			if gone == 100 { // what was used more since is not among the least used any more
				ask(s, key("used", 100), logPerHour(16), 5)
			}
			ask(s, key("new", gone), logPerHour(16), 16)
			for i := range n / 10 {
				left := 0
				for j := range 10 {
					if s.partitions[0].long[key("used", 10*i+j)] != nil {
						left++
					}
				}
				if least := min(max(10*(i+1)-(gone-9)-1, 0), 10); left < least && i < 9 {
					t.Fatalf("after %d new ones, %d of those that have used %d/16 are left, want %d", gone+1, left, i+1, least)
				}
			}
		}
		if s.partitions[0].long[key("used", 100)] == nil {
			t.Error("evicted before counters that have used less")
		}
	})
}

// checkLevels returns an error unless each long counter is once in the level of its share.
func checkLevels(s *Shard) error {
	for p := range s.partitions {
		n := 0
		if x := s.longLevels[p]; x != nil {
			for i := range x {
				var last *longEntry
				for e := x[i].first; e != nil; last, e = e, e.next {
					if n++; int(levelOf(e.share)) != i || e.previous != last || s.partitions[p].long[e.key] != e {
						return fmt.Errorf("partition %d, level %d: counter %v of share %d", p, i, e.key, e.share)
					}
				}
				if x[i].last != last {
					return fmt.Errorf("partition %d, level %d: wrong end", p, i)
				}
			}
		}
		if n != len(s.partitions[p].long) {
			return fmt.Errorf("partition %d: %d counters in levels, %d in all", p, n, len(s.partitions[p].long))
		}
	}
	return nil
}

// BenchmarkLongFlood takes one token of a new log each time, in memory full of exhausted ones.
func BenchmarkLongFlood(b *testing.B) {
	const exhausted = 10_000
	s := newShardOf(b, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: exhausted * (longOverhead + 4*16)})
	groups := []Group{{Takes: []Take{{Limit: logPerHour(10), Cost: 10}}}}
	take := func(i int) {
		groups[0].Takes[0].Key = ring.Key{Hi: uint64(i) * 0x9e3779b97f4a7c15, Lo: uint64(i)}
		s.Decide(groups)
	}
	for i := range exhausted - 10 {
		take(i)
	}
	groups[0].Takes[0].Cost = 1
	b.ReportAllocs()
	for i := exhausted; b.Loop(); i++ {
		take(i)
	}
}

// BenchmarkLongTake takes one token of one of 10,000 logs.
func BenchmarkLongTake(b *testing.B) {
	s := newShard(b)
	groups := []Group{{Takes: []Take{{Limit: logPerHour(10), Cost: 1}}}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		k := uint64(i % 10_000)
		groups[0].Takes[0].Key = ring.Key{Hi: k * 0x9e3779b97f4a7c15, Lo: k}
		s.Decide(groups)
	}
}
