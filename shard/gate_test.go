package shard

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// in returns the i-th key of partition p of s.
func in(s *Shard, p uint32, i int) ring.Key {
	n := uint64(len(s.partitions))
	return ring.Key{Hi: key("in", i).Hi, Lo: (uint64(p)<<32 + n - 1) / n} // see ring.Key.Partition
}

// A group that touches a sealed partition is redirected, and counts nothing anywhere.
func TestSealedPartitionRedirects(t *testing.T) {
	for _, limit := range []algorithms.Limit{perHour(10), tokenBucketPerHour(10), logPerHour(10)} {
		synctest.Test(t, func(t *testing.T) {
			s := newShardOf(t, Config{Partitions: 3, MaxBytes: MinBytes(3)})
			here, there := Take{Key: in(s, 0, 0), Limit: limit, Cost: 1}, Take{Key: in(s, 1, 0), Limit: limit, Cost: 1}
			lease := borrow(s, 1, there)
			s.Decide([]Group{{Takes: []Take{here}}, {Takes: []Take{there}}})
			used := func(take Take) int64 { return 10 - ask(s, take.Key, limit, 0).Remaining }
			usedHere, usedThere := used(here), used(there)
			returned := []Take{there}
			returned[0].Decision.At = s.now()
			shadow, refund, back := there, there, there
			shadow.Shadow, refund.Cost, back.Cost = true, -1, -lease.TokenLease.Tokens
			s.Seal(1)
			if !s.IsSealed(1) || s.IsSealed(0) {
				t.Errorf("sealed: %t, %t", s.IsSealed(0), s.IsSealed(1))
			}
			s.Return(returned)
			for name, g := range map[string]Group{
				"one":            {Takes: []Take{there}},
				"a shadow":       {Takes: []Take{shadow}},
				"a refund":       {Takes: []Take{refund}},
				"a peek":         {Takes: []Take{there}, Peek: true},
				"a reset":        {Takes: []Take{there}, Reset: true},
				"a lease":        {Takes: []Take{there}, Lend: 5, Tokens: 1},
				"a lease of two": {Takes: []Take{here, there}, Lend: 5, Tokens: 1},
				"a lease's rest": {Takes: []Take{back}, LentAt: s.now()},
				"two, one open":  {Takes: []Take{here, there}},
				"a shadow too":   {Takes: []Take{shadow, here}},
				"a reset of two": {Takes: []Take{here, there}, Reset: true},
			} {
				groups := []Group{g}
				groups[0].Allowed = true
				s.Decide(groups)
				if groups[0].Allowed || groups[0].TokenLease != (TokenLease{}) {
					t.Errorf("%v, %s: %+v", limit.Algorithm, name, groups[0])
				}
				for _, take := range groups[0].Takes {
					want := Undecided
					if take.Key == there.Key {
						want = Redirected
					}
					if take.Source != want || take.Decision != (algorithms.Decision{}) {
						t.Errorf("%v, %s: %+v", limit.Algorithm, name, take)
					}
				}
			}
			own := []Group{{Takes: []Take{{Key: in(s, 1, 1), Limit: limit, Cost: 1}}, Ungated: true}}
			if s.Decide(own); !own[0].Allowed || own[0].Takes[0].Source != Owner {
				t.Errorf("%v, this node's own: %+v", limit.Algorithm, own[0])
			}
			s.Unseal(1)
			if h, th := used(here), used(there); h != usedHere || th != usedThere {
				t.Errorf("%v: %d and %d are used, were %d and %d", limit.Algorithm, h, th, usedHere, usedThere)
			}
		})
	}
}

// After the end of its decision lease a node decides only groups that are Ungated.
func TestDecisionLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		take := takeOf("a", perHour(10), 1)
		sources := func() (all [4]Source) {
			groups := []Group{
				{Takes: []Take{take}},
				{Takes: []Take{take, takeOf("b", perHour(10), 1)}},
				{Takes: []Take{take}, Reset: true},
				{Takes: []Take{take}, Ungated: true},
			}
			s.Decide(groups)
			for i, g := range groups {
				if all[i] = g.Takes[0].Source; g.Allowed != (all[i] == Owner) || len(g.Takes) == 2 && g.Takes[1].Source != all[i] {
					t.Errorf("%d: %+v", i, g)
				}
			}
			return all
		}
		holds, lapsed := [4]Source{Owner, Owner, Owner, Owner}, [4]Source{Redirected, Redirected, Redirected, Owner}
		want := func(what string, want [4]Source) {
			t.Helper()
			if got := sources(); got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		want("never set", holds)
		s.SetDecisionLease(time.Now().Add(time.Second))
		time.Sleep(time.Second - 1)
		want("a nanosecond before", holds)
		time.Sleep(time.Nanosecond)
		want("at its end", lapsed)
		s.SetDecisionLease(time.Now().Add(1))
		want("renewed", holds)
		time.Sleep(time.Hour)
		want("an hour later", lapsed)
		s.SetDecisionLease(time.Unix(1<<60, 0))
		want("for ever", holds)
		s.SetDecisionLease(time.Unix(-1<<60, 0))
		want("since ever", lapsed)
		s.SetDecisionLease(time.Time{})
		want("without bound", holds)
		empty := []Group{{}}
		s.SetDecisionLease(time.Now())
		if s.Decide(empty); !empty[0].Allowed {
			t.Error("a group of nothing")
		}
	})
}

// After Seal has returned, no decision changes the counters.
func TestSealIsABarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 2, MaxBytes: MinBytes(2)})
		one, two := Take{Key: in(s, 0, 0), Limit: perHour(1 << 30), Cost: 1}, Take{Key: in(s, 1, 0), Limit: perHour(1 << 30), Cost: 1}
		var allowed, moved atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				groups := []Group{{Takes: []Take{one}}, {Takes: []Take{one, two}}}
				for range 3000 {
					s.Decide(groups)
					for _, g := range groups {
						if g.Allowed {
							allowed.Add(1)
						}
						if g.Takes[0].Source == Redirected {
							moved.Add(1)
						}
					}
				}
			})
		}
		for range 100 {
			s.Seal(0)
			before := s.partitions[0].table.n
			state := s.stateOf(one.Key)
			for range 10 {
				if s.stateOf(one.Key) != state || s.partitions[0].table.n != before {
					t.Error("a decision was made after Seal")
				}
			}
			s.Unseal(0)
		}
		wg.Wait()
		if used := 1<<30 - ask(s, one.Key, one.Limit, 0).Remaining; used != allowed.Load() || allowed.Load()+moved.Load() != 4*3000*2 {
			t.Errorf("%d used, %d allowed, %d moved", used, allowed.Load(), moved.Load())
		}
	})
}

func (s *Shard) stateOf(k ring.Key) algorithms.State {
	p := s.partition(k)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.table.find(s.arena, k); e != nil {
		return e.state
	}
	return algorithms.State{}
}

// Tentative takes from before other nodes may have decided are not undone to the state of then.
func TestSealDropsHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard(t)
		take := takeOf("a", tokenBucketPerHour(10), 1)
		take.Tentative = true
		g := []Group{{Takes: []Take{take}}}
		s.Decide(g)
		p := take.Key.Partition(1021)
		s.Seal(p)
		s.Unseal(p)
		if s.partitions[p].histories() != nil || s.steps.Load() != 0 {
			t.Errorf("%d steps are remembered", s.steps.Load())
		}
	})
}
