package shard

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// A bucket from which tentative takes were undone is as if they had never been, after any other operations
// in between: the twin replays all takes that were not undone.
func TestTentativeTakesAreUndoneExactly(t *testing.T) {
	limits := []algorithms.Limit{
		{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: int64(time.Second), Burst: 20},
		{Algorithm: algorithms.GCRA, Limit: 70, Window: int64(time.Second)},
		{Algorithm: algorithms.GCRA, Limit: 70, Window: int64(time.Second), Burst: 5, MaxDelay: int64(time.Second)},
		{Algorithm: algorithms.LeakyBucket, Limit: 500, Window: int64(time.Second), MaxDelay: int64(time.Second)},
	}
	run := func(t *testing.T, s *Shard, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		k, limit := key("a", int(seed)), limits[seed%uint64(len(limits))]
		var kept []step
		var pending []Take
		for range 60 {
			time.Sleep(time.Duration([]int64{1, 1000, 300_000, 5_000_000}[r.IntN(4)]))
			if len(pending) > 0 && r.IntN(3) == 0 {
				i := r.IntN(len(pending))
				undone := step{pending[i].Decision.At, pending[i].Cost}
				if time.Now().UnixNano()-undone.at <= int64(undoFor) {
					s.Return(pending[i : i+1])
					at := slices.Index(kept, undone)
					kept = slices.Delete(kept, at, at+1)
				}
				pending = slices.Delete(pending, i, i+1)
			}
			take := Take{Key: k, Limit: limit, Cost: r.Int64N(8) - 2}
			take.Tentative = take.Cost > 0 && r.IntN(2) == 0
			g := []Group{{Takes: []Take{take}}}
			if r.IntN(2) == 0 {
				g[0].Takes = append(g[0].Takes, Take{Key: key("other", 0), Limit: perHour(1 << 20), Cost: 1})
			}
			s.Decide(g)
			take = g[0].Takes[0]
			if take.changes(len(kept) > 0) {
				kept = append(kept, step{take.Decision.At, take.Cost})
			}
			if take.Tentative && take.Decision.Allowed {
				pending = append(pending, take)
			}
			var want algorithms.State
			for _, x := range kept {
				want, _ = algorithms.Step(&limit, want, x.at, x.cost)
			}
			now := time.Now().UnixNano()
			_, wantLook := algorithms.Step(&limit, want, now, 0)
			_, gotLook := algorithms.Step(&limit, s.stateLocked(s.partition(k), s.partition(k).table.find(s.arena, k), &take), now, 0)
			if gotLook != wantLook {
				t.Fatalf("seed %d, %+v: %+v, want %+v after %v", seed, limit, gotLook, wantLook, kept)
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		for seed := range uint64(1000) {
			run(t, s, seed)
		}
	})
}

// A refund is not undone into tokens that others may have used since.
func TestUndoneRefundsFreeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour)}
		used, all := key("used", 0), key("all", 0)
		refund := func(k ring.Key, cost int64) []Take {
			g := []Group{{Takes: []Take{{Key: k, Limit: bucket, Cost: -cost, Tentative: true}}}}
			s.Decide(g)
			return g[0].Takes
		}
		s.Decide([]Group{{Takes: []Take{{Key: used, Limit: bucket, Cost: 9, Tentative: true}}}})
		one := refund(used, 1)
		ask(s, used, bucket, 2)
		s.Return(one)
		if d := ask(s, used, bucket, 0); d.Remaining != 0 {
			t.Errorf("10 used, and a refund undone: %+v", d)
		}
		ask(s, all, bucket, 10)
		s.Return(refund(all, 10))
		time.Sleep(2 * time.Second)
		s.sweep(s.partition(all))
		if d := ask(s, all, bucket, 10); d.Allowed {
			t.Errorf("10 used, given back, and that undone: %+v", d)
		}
	})
}

// Histories are bounded, and deleted when they expire.
func TestHistoriesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1 << 20, Window: int64(time.Hour)}
		p := &s.partitions[0]
		take := func(i int, tentative bool) {
			s.Decide([]Group{{Takes: []Take{{Key: key("a", i), Limit: bucket, Cost: 1, Tentative: tentative}}}})
		}
		take(0, false)
		if p.histories() != nil {
			t.Error("a take is remembered that cannot be undone")
		}
		for i := range maxHistories + 10 {
			take(i, true)
		}
		if len(p.histories()) != maxHistories {
			t.Errorf("%d histories, the bound is %d", len(p.histories()), maxHistories)
		}
		for range maxSteps - 1 {
			take(0, false)
		}
		if n := len(p.histories()[key("a", 0)].steps); n != maxSteps {
			t.Errorf("%d steps", n)
		}
		if take(0, false); p.histories()[key("a", 0)] != nil {
			t.Error("there is no bound")
		}
		s.Decide([]Group{{Reset: true, Takes: []Take{{Key: key("a", 1), Limit: bucket}}}})
		if p.histories()[key("a", 1)] != nil {
			t.Error("it is remembered what was before a reset")
		}
		time.Sleep(undoFor + time.Millisecond)
		take(maxHistories+20, false)
		if s.sweep(p); p.histories() != nil {
			t.Errorf("%d histories are left", len(p.histories()))
		}
	})
}

// Without a history a take is undone as far as is certain: as little is given back as may be due.
func TestUndoWithoutHistory(t *testing.T) {
	bucket := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1000, Window: int64(time.Second), Burst: 100}
	raised := bucket
	raised.Burst = 101
	k := key("a", 0)
	for name, tc := range map[string]struct {
		between func(s *Shard, p *partition) // A's take of 10, and B's 1 ms later, and what is 4 ms later
		limit   algorithms.Limit             // of A when it gives back
		want    int64                        // how much of the bucket is used then
	}{
		"known": {func(*Shard, *partition) {}, bucket, 10 - 4},
		// 15 are used; of A's 10, 5 may have drained.
		"another limit when it is undone": {func(*Shard, *partition) {}, raised, 15 - 5},
		"another limit in between":        {func(s *Shard, _ *partition) { ask(s, k, raised, 1) }, bucket, 16 - 5},
		"undone what was not tentative": {func(s *Shard, _ *partition) {
			g := []Group{{Takes: []Take{{Key: k, Limit: bucket, Cost: 1}}}}
			s.Decide(g)
			g[0].Takes[0].Decision.At-- // no take was counted then
			s.Return(g[0].Takes)
		}, bucket, 16 - 5},
		"evicted": {func(s *Shard, p *partition) {
			s.deleteLocked(p, k)
			ask(s, k, bucket, 7)
		}, bucket, 7 - 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShard(t)
			p := s.partition(k)
			a := []Group{{Takes: []Take{{Key: k, Limit: bucket, Cost: 10, Tentative: true}}}}
			s.Decide(a)
			time.Sleep(time.Millisecond)
			ask(s, k, bucket, 10)
			time.Sleep(4 * time.Millisecond)
			tc.between(s, p)
			a[0].Takes[0].Limit = tc.limit
			s.Return(a[0].Takes)
			if used := bucket.Burst - ask(s, k, bucket, 0).Remaining; used != tc.want {
				t.Errorf("%s: %d used, want %d", name, used, tc.want)
			}
		})
	}
}

// A take that was counted long after the last tentative one begins no second history with it.
func TestHistoryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		k := key("a", 0)
		hour := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 1 << 20, Window: int64(time.Hour)}
		take := func(tentative bool) {
			s.Decide([]Group{{Takes: []Take{{Key: k, Limit: hour, Cost: 1, Tentative: tentative}}}})
		}
		take(true)
		time.Sleep(undoFor / 2)
		take(false)
		time.Sleep(undoFor/2 + 1)
		if take(true); len(s.partition(k).histories()[k].steps) != 1 {
			t.Errorf("%d steps", len(s.partition(k).histories()[k].steps))
		}
	})
}

// A counter emptied by a group's give-back may be dropped for another take of the group. If a third take
// denies the group, it is there again.
func TestUndoOfDroppedCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 1, MaxBytes: 100 * MinBytes(1)})
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second))) // it is over now, not in a second
		p, bucket := &s.partitions[0], algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour)}
		dropped := 0
		for i := 0; dropped == 0; i++ {
			if i == 1000 {
				t.Fatal("never dropped")
			}
			k := key("k", i)
			ask(s, k, bucket, 10)
			g := []Group{{Takes: []Take{
				{Key: k, Limit: bucket, Cost: -10},
				{Key: key("new", i), Limit: bucket, Cost: 1},
				{Key: key("denied", i), Limit: bucket, Cost: 11},
			}}}
			before := s.Len()
			s.Decide(g)
			if d := ask(s, k, bucket, 1); g[0].Allowed || d.Allowed || s.Len() != before || s.Len() != p.table.n {
				t.Fatalf("%d: %+v, %+v, %d counters", i, g[0], d, s.Len())
			}
			dropped = int(testutil.ToFloat64(s.metrics.expired))
		}
	})
}
