package shard

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// TestBatchDecidesAsOneByOne gives one Shard many groups at once, and its twin the same at the same instant
// one by one. There are few counters, so that neighbours meet in one partition, in one counter, and in a
// take just denied.
func TestBatchDecidesAsOneByOne(t *testing.T) {
	limits := []algorithms.Limit{
		perHour(3), perHour(0),
		{Algorithm: algorithms.GCRA, Limit: 3, Window: int64(time.Second), Burst: 4},
		{Algorithm: algorithms.LeakyBucket, Limit: 3, Window: int64(time.Second), MaxDelay: int64(time.Second)},
		logPerHour(3),
	}
	take := rapid.Custom(func(rt *rapid.T) Take {
		return Take{
			Key:       ring.Key{Hi: rapid.Uint64Range(0, 2).Draw(rt, "hi") << 60, Lo: rapid.Uint64Range(0, 1).Draw(rt, "lo") << 31},
			Limit:     rapid.SampledFrom(limits).Draw(rt, "limit"),
			Cost:      rapid.SampledFrom([]int64{1, 1, 1, 2, 3, 5, 0, -1}).Draw(rt, "cost"),
			Shadow:    rapid.Uint8Range(0, 3).Draw(rt, "shadow") == 0,
			Tentative: rapid.Uint8Range(0, 3).Draw(rt, "tentative") == 0,
		}
	})
	group := rapid.Custom(func(rt *rapid.T) Group {
		one := func(what string, in uint8) bool { return rapid.Uint8Range(0, in).Draw(rt, what) == 1 }
		g := Group{
			Takes:       rapid.SliceOfN(take, 1, 1+int(rapid.Uint8Range(0, 4).Draw(rt, "takes")/4)).Draw(rt, "of"),
			Peek:        one("peek", 3),
			Reset:       one("reset", 20),
			Ungated:     one("ungated", 1),
			Provisional: one("provisional", 9),
		}
		for i := range g.Takes {
			// A key goes with one window and algorithm for good.
			g.Takes[i].Key.Hi |= uint64(g.Takes[i].Limit.Algorithm)
		}
		return g
	})
	rapid.Check(t, func(rt *rapid.T) {
		batches := rapid.SliceOfN(rapid.SliceOfN(group, 24, 2*lookAhead), 2, 6).Draw(rt, "batches")
		for _, b := range batches { // runs of one question, or nearly so
			for i := range b {
				if i == 0 || rapid.Bool().Draw(rt, "another") {
					continue
				}
				b[i] = cloned(b[i-1])
				switch g := &b[i]; rapid.Uint8Range(0, 9).Draw(rt, "but") {
				case 1:
					g.Takes[0].Cost++
				case 2:
					g.Takes[0].Shadow = !g.Takes[0].Shadow
				case 3:
					g.Takes[0].Limit.Limit += 2
				case 4:
					g.Peek = !g.Peek
				case 5:
					g.Ungated = !g.Ungated
				}
			}
		}
		closed := rapid.SliceOfN(rapid.Uint8Range(0, 1), len(batches), len(batches)).Draw(rt, "closed")
		var problem string
		synctest.Test(t, func(t *testing.T) { problem = checkBatches(t, batches, closed) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// A look that was denied is no denial that keeps a counter for longer because its limit was lowered.
func TestDeniedAfterALook(t *testing.T) {
	of := func(limit, cost int64, peek bool) Group {
		l := algorithms.Limit{Algorithm: algorithms.GCRA, Limit: limit, Window: int64(time.Second), Burst: 30}
		return Group{Takes: []Take{{Limit: l, Cost: cost}}, Peek: peek}
	}
	batches := [][]Group{{of(30, 30, false)}, {of(1, 29, true), of(1, 29, false)}}
	synctest.Test(t, func(t *testing.T) {
		if problem := checkBatches(t, batches, []uint8{1, 1}); problem != "" {
			t.Error(problem)
		}
	})
}

// checkBatches decides the batches. Partition 0 is closed during those where closed is 0.
func checkBatches(t *testing.T, batches [][]Group, closed []uint8) (problem string) {
	small := Config{Partitions: 2, MaxBytes: MinBytes(2)}
	all, single := newShardOf(t, small), newShardOf(t, small)
	for _, s := range []*Shard{all, single} {
		s.Follow(0, ToStandby)
	}
	for n, b := range batches {
		for _, s := range []*Shard{all, single} {
			if s.Unseal(0); closed[n] == 0 {
				s.Seal(0)
			}
		}
		twins := make([]Group, len(b))
		for i := range b {
			twins[i] = cloned(b[i])
			single.Decide(twins[i : i+1])
		}
		all.Decide(b)
		for i := range b {
			if !reflect.DeepEqual(b[i], twins[i]) {
				return fmt.Sprintf("batch %d: group %d:\n at once     %+v\n one by one %+v", n, i, b[i], twins[i])
			}
		}
		for p := range uint32(2) {
			if a, o := all.Heat(p), single.Heat(p); a != o {
				return fmt.Sprintf("batch %d: heat of partition %d is %d at once, %d one by one", n, p, a, o)
			}
		}
		a, _ := all.Changes(0, ToStandby, nil, 1<<20)
		o, _ := single.Changes(0, ToStandby, nil, 1<<20)
		if !bytes.Equal(a, o) {
			return fmt.Sprintf("batch %d: a follower is told\n at once     %x\n one by one %x", n, a, o)
		}
		time.Sleep(300 * time.Millisecond)
	}
	return ""
}

func cloned(g Group) Group {
	g.Takes = slices.Clone(g.Takes)
	return g
}
