package shard

import (
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// pull gives follower f of p of s up to about so many bytes, and lays them over what to has.
func pull(s, to *Shard, p uint32, f Follower, most int) (more bool, err error) {
	records, more := s.Changes(p, f, nil, most)
	return more, to.Apply(p, records)
}

// drain gives follower f everything.
func drain(t testing.TB, s, to *Shard, p uint32, f Follower) {
	t.Helper()
	for more := true; more; {
		var err error
		if more, err = pull(s, to, p, f, 1<<16); err != nil {
			t.Fatal(err)
		}
	}
}

// While others decide, what they have counted when the partition is sealed is all in the copy.
func TestFollowWhileDeciding(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 22})
	var copies [followers]*Shard
	for f := range copies {
		copies[f] = newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 24})
		copies[f].Seal(0)
	}
	limits := followLimits()
	var deciding, following sync.WaitGroup
	stop := make(chan struct{})
	for w := range 3 {
		deciding.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				var takes []Take
				for i := range 1 + n%2 {
					k := r.IntN(10_000)
					take := Take{Key: in(s, uint32(i), k), Limit: limits[k%len(limits)], Cost: r.Int64N(6) - 1}
					take.Key.Lo |= uint64(k%len(limits)) << 48 // the partition stays
					takes = append(takes, take)
				}
				groups := []Group{{Takes: takes, Reset: n%50 == 0}}
				s.Decide(groups)
			}
		})
	}
	for f, copied := range copies {
		following.Go(func() {
			s.Follow(0, Follower(f))
			for range 200 {
				if _, err := pull(s, copied, 0, Follower(f), 1<<14); err != nil {
					t.Error(err)
				}
			}
		})
	}
	following.Go(func() {
		for range 20 {
			s.sweep(&s.partitions[0])
		}
	})
	following.Wait()
	s.Seal(0)
	close(stop)
	deciding.Wait() // of those that have found it sealed, some have moved its clock
	for f, copied := range copies {
		drain(t, s, copied, 0, Follower(f))
		if d := difference(s, copied, 0, sparedBy(f)); d != "" {
			t.Errorf("follower %d: %s", f, d)
		}
	}
}

// A standby is spared what will be over before it would need it.
func TestStandbyIsSparedBriefCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		copied.Seal(0)
		s.Follow(0, ToStandby)
		drain(t, s, copied, 0, ToStandby)
		window := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 10, Window: int64(time.Second)}
		time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
		known := func(i int) bool {
			drain(t, s, copied, 0, ToStandby)
			return copied.partitions[0].table.find(copied.arena, key("k", i)) != nil
		}
		time.Sleep(700 * time.Millisecond)
		if ask(s, key("k", 0), window, 1); !known(0) {
			t.Error("300 ms before its end")
		}
		time.Sleep(time.Nanosecond)
		if ask(s, key("k", 1), window, 1); known(1) {
			t.Error("later")
		}
		if ask(s, key("k", 2), logPerHour(10), 1); copied.partitions[0].long[key("k", 2)] != nil {
			t.Error("before it is asked")
		}
		if known(2); copied.partitions[0].long[key("k", 2)] == nil {
			t.Error("a log")
		}
		// One that is given back to is over soon, too, but not where it is known from before.
		ask(s, key("k", 3), tokenBucketPerHour(10), 5)
		known(3)
		ask(s, key("k", 3), tokenBucketPerHour(10), -5)
		drain(t, s, copied, 0, ToStandby)
		copied.Unseal(0)
		if d := ask(copied, key("k", 3), tokenBucketPerHour(10), 0); d.Remaining != 10 {
			t.Errorf("a refund is not known: %+v", d)
		}
	})
}

// A counter that was reset and has begun again, briefly, is not what it was.
func TestStandbyIsGivenResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		copied.Seal(0)
		s.Follow(0, ToStandby)
		fast := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Second), Burst: 1000}
		ask(s, key("k", 0), fast, 1000)
		drain(t, s, copied, 0, ToStandby)
		s.Decide([]Group{{Reset: true, Takes: []Take{{Key: key("k", 0), Limit: fast}}}})
		ask(s, key("k", 0), fast, 1)
		drain(t, s, copied, 0, ToStandby)
		copied.Unseal(0)
		if d := ask(copied, key("k", 0), fast, 0); d.Remaining < 999 {
			t.Errorf("%+v", d)
		}
	})
}

func TestFollowedDecideAllocatesNothing(t *testing.T) {
	s := newShard(t)
	groups := []Group{
		{Takes: []Take{{Key: key("a", 0), Limit: perHour(1 << 30), Cost: 1}}},
		{Takes: []Take{{Key: key("a", 1), Limit: perHour(1 << 30), Cost: 1}, {Key: key("b", 1), Limit: perHour(1 << 30), Cost: 1}}},
	}
	for _, g := range groups {
		for _, take := range g.Takes {
			s.Follow(take.Key.Partition(1021), ToStandby)
			s.Changes(take.Key.Partition(1021), ToStandby, nil, 1<<20)
		}
	}
	if n := testing.AllocsPerRun(1000, func() { s.Decide(groups) }); n != 0 {
		t.Errorf("%v allocations per decision, want 0", n)
	}
}
