package shard

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Every change of a counter is given to a follower, once.
func TestEveryChangeIsRecorded(t *testing.T) {
	hour, bucket, log := perHour(10), tokenBucketPerHour(10), logPerHour(10)
	lowered := bucket
	lowered.Limit, lowered.Burst = 5, 10
	take := func(i int, l algorithms.Limit, cost int64) Take { return Take{Key: key("k", i), Limit: l, Cost: cost} }
	group := func(takes ...Take) func(s *Shard, last []Take) {
		return func(s *Shard, _ []Take) { s.Decide([]Group{{Takes: takes}}) }
	}
	for _, tc := range []struct {
		name   string
		change func(s *Shard, last []Take)
		told   int // how many counters
	}{
		{"a take", group(take(0, hour, 1)), 1},
		{"several takes of one", func(s *Shard, _ []Take) {
			for range 3 {
				group(take(0, hour, 1))(s, nil)
				group(take(0, hour, 1), take(2, log, 1))(s, nil)
			}
		}, 2},
		{"a new counter", group(take(9, hour, 1)), 1},
		{"a refund", group(take(0, hour, -1)), 1},
		{"several", group(take(0, hour, 1), take(2, log, 1), take(9, hour, 1), take(8, log, 1)), 4},
		{"refunds of one group", group(take(0, hour, -1), take(2, log, -1)), 2},
		{"a lowered limit", group(take(1, lowered, 0)), 1},
		{"a lowered limit with another", group(take(1, lowered, 0), take(5, lowered, 0)), 1},
		{"a reset", func(s *Shard, last []Take) { s.Decide([]Group{{Takes: last, Reset: true}}) }, 3},
		{"what is returned", func(s *Shard, last []Take) { s.Return(last) }, 3},
		{"a refund that is returned", func(s *Shard, last []Take) {
			for i := range last {
				last[i].Cost = -1
			}
			s.Return(last)
		}, 3},
		{"a lease's rest", func(s *Shard, last []Take) {
			for i := range last {
				last[i].Cost = -1
			}
			s.Decide([]Group{{Takes: last, LentAt: last[0].Decision.At}})
		}, 2},
		{"grants", func(s *Shard, _ []Take) {
			var long algorithms.Long
			long.Step(&log, s.now(), 1, true)
			s.AddGrants([]Grant{{Key: key("k", 0), Limit: hour, State: s.stateOf(key("k", 0))}, {Key: key("k", 2), Limit: log, Long: &long}})
		}, 2},
		{"one is evicted, and one is new", func(s *Shard, _ []Take) {
			for i := 0; s.Len() <= smallest+1; i++ {
				if evicted := testutil.ToFloat64(s.metrics.evicted); evicted > 0 {
					break
				}
				ask(s, key("fresh", i), hour, 1)
			}
		}, -1},
		{"several are evicted by a group", func(s *Shard, _ []Take) {
			for i := range smallest {
				ask(s, key("fresh", i), hour, 1)
			}
			s.Decide([]Group{{Takes: []Take{take(9, hour, 5), take(10, hour, 5), take(8, log, 10)}}})
		}, -1},
		{"many share one", func(s *Shard, _ []Take) {
			for i := range 2 * smallest {
				ask(s, key("half", i), hour, 5)
			}
		}, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newShardOf(t, Config{Partitions: 1, MaxBytes: MinBytes(1), MaxLongBytes: 2*longOverhead + 128})
			copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
			copied.Seal(0)
			g := []Group{{Takes: []Take{take(0, hour, 2), take(1, bucket, 2), take(2, log, 2)}}}
			s.Decide(g)
			for f := range Follower(followers) {
				s.Follow(0, f)
				drain(t, s, copied, 0, f)
			}
			tc.change(s, g[0].Takes)
			for f, x := range s.partitions[0].follows {
				if n := len(x.list) + len(x.longs); tc.told >= 0 && n != tc.told || n == 0 || !s.HasChanges(0, Follower(f)) {
					t.Errorf("%s: follower %d is told of %d, want %d", tc.name, f, n, tc.told)
				}
			}
			tc.change(s, g[0].Takes)
			s.Seal(0)
			drain(t, s, copied, 0, ToSuccessor)
			s.Follow(0, ToSuccessor) // forgets its marks
			drain(t, s, copied, 0, ToStandby)
			if d := difference(s, copied, 0, func(ring.Key) bool { return false }); d != "" {
				t.Errorf("%s: %s", tc.name, d)
			}
		})
	}
}

// A follower that has everything is given nothing; one of a sealed partition the clock.
func TestNoChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShard(t), newShard(t)
		a := takeOf("a", perHour(10), 1)
		p := a.Key.Partition(1021)
		copied.Seal(p)
		if records, more := s.Changes(p, ToSuccessor, []byte("x"), 1<<16); string(records) != "x" || more {
			t.Errorf("no follower: %q, %t", records, more)
		}
		s.Follow(p, ToSuccessor)
		drain(t, s, copied, p, ToSuccessor)
		ask(s, a.Key, a.Limit, 0)
		for _, denied := range []Group{
			{Takes: []Take{takeOf("a", perHour(10), 11)}},
			{Takes: []Take{a, {Key: a.Key, Limit: a.Limit, Cost: 10}}},
			{Takes: []Take{takeOf("a", logPerHour(10), 1), a, {Key: a.Key, Limit: a.Limit, Cost: 10}}},
			{Takes: []Take{a}, Peek: true},
		} {
			s.Decide([]Group{denied})
		}
		if s.HasChanges(p, ToSuccessor) || s.HasChanges(p, ToStandby) {
			t.Error("nothing was counted, and there are changes")
		}
		if records, more := s.Changes(p, ToSuccessor, nil, 1<<16); len(records) != 0 || more {
			t.Errorf("nothing was counted: %q, %t", records, more)
		}
		time.Sleep(time.Second)
		ask(s, a.Key, a.Limit, 0)
		s.Seal(p)
		drain(t, s, copied, p, ToSuccessor)
		if at := copied.partitions[p].latest; at != s.partitions[p].latest {
			t.Errorf("the clock of the copy shows %d, the owner's %d", at, s.partitions[p].latest)
		}
	})
}

// A follower that is far behind begins again from where it was, and gets once round however far behind it
// is each time.
func TestFollowerFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24})
		copied.Seal(0)
		const keys = 20_000
		var last ring.Key
		for i := range keys {
			k := key("k", i)
			ask(s, k, perHour(10), 1)
			if k.Hi > last.Hi {
				last = k
			}
		}
		change := func(n, of int) {
			for i := of * n; n > 0; i++ {
				if k := key("k", i%keys); k != last {
					ask(s, k, perHour(1<<30), 1)
					n--
				}
			}
		}
		s.Follow(0, ToSuccessor)
		drain(t, s, copied, 0, ToSuccessor)
		x := s.partitions[0].follows[ToSuccessor]
		change(maxChanges, 0)
		if len(x.list) != maxChanges || x.scanning {
			t.Errorf("%d listed, from the start: %t", len(x.list), x.scanning)
		}
		ask(s, last, perHour(10), 1)
		if len(x.list) != 0 || !x.scanning || testutil.ToFloat64(s.metrics.restarts) != 1 {
			t.Errorf("%d listed, from the start: %t", len(x.list), x.scanning)
		}
		rounds := 0
		for ; copied.stateOf(last) != s.stateOf(last); rounds++ {
			if _, err := pull(s, copied, 0, ToSuccessor, 1<<16); err != nil || rounds > 2*keys*slotBytes>>16 {
				t.Fatalf("%d rounds, %v", rounds, err)
			}
			change(maxChanges+1000, rounds)
		}
		if n := testutil.ToFloat64(s.metrics.restarts); n < 3 {
			t.Errorf("it was too far behind %v times in %d rounds", n, rounds)
		}
		s.Seal(0)
		drain(t, s, copied, 0, ToSuccessor)
		if d := difference(s, copied, 0, func(ring.Key) bool { return false }); d != "" || copied.Len() != keys {
			t.Errorf("%s; %d counters", d, copied.Len())
		}
	})
}

// One step visits some slots, also where they are empty and while the table moves.
func TestScanStepIsBounded(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 23})
	p := &s.partitions[0]
	for i := range 50_000 {
		ask(s, key("k", i), perHour(10), 1)
	}
	for p.table.moving != nil {
		p.table.move(s.arena, 1<<20, 0)
	}
	steps := func(from uint64) (n, visited int) {
		for to := uint64(0); to != 1<<64-1; from, n = to+1, n+1 {
			to = s.visitLocked(p, from, func(*slot) { visited++ })
			if n > 0 && to < from {
				t.Fatalf("from %x to %x", from, to)
			}
		}
		return n, visited
	}
	want := func(what string, slots int) {
		t.Helper()
		for _, from := range []uint64{1e15, 3e15, 5e15} { // steps end elsewhere then
			behind := 0
			for c := p.table.seek(s.arena, from); c.next(s.arena) != nil; c.i++ {
				behind++
			}
			if _, visited := steps(from); visited != behind {
				t.Errorf("%s: %d visited from %x on, there are %d", what, visited, from, behind)
			}
		}
		if n, visited := steps(0); n < slots/changesStep || n > slots/changesStep+4 || visited != p.table.n {
			t.Errorf("%s: %d steps for %d slots, %d of %d visited", what, n, slots, visited, p.table.n)
		}
	}
	homes := p.table.homes
	want("used", homes)
	for i := range 40_000 {
		s.deleteLocked(p, key("k", i))
	}
	want("mostly empty", homes)
	p.table.tidy(s.arena)
	for p.table.move(s.arena, 500, 0); p.table.moving != nil; p.table.move(s.arena, 500, 0) {
		m := p.table.moving
		want("moving", p.table.end()-m.from+m.home(m.frontier))
	}
}

func TestUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 3, MaxBytes: MinBytes(3)})
		var told []uint32
		s.OnUrgent(func(p uint32) {
			s.IsFollowing(p, ToStandby) // no lock is held
			told = append(told, p)
		})
		take := func(p uint32, l algorithms.Limit, cost int64) {
			s.Decide([]Group{{Takes: []Take{{Key: in(s, p, 0), Limit: l, Cost: cost}}}})
		}
		want := func(what string, n int) {
			t.Helper()
			if len(told) != n {
				t.Errorf("%s: told of %v, want %d", what, told, n)
			}
			told = nil
		}
		take(1, perHour(1000), 50)
		want("no follower", 0)
		s.Follow(1, ToSuccessor)
		take(1, perHour(1000), 50)
		want("only a mover follows", 0)
		s.Follow(1, ToStandby)
		for range 100 {
			take(1, perHour(1000), 1)
		}
		want("a tenth", 2)
		take(1, perHour(1000), -100)
		want("a refund", 0)
		take(1, perHour(1000), 2000)
		want("a denial", 0)
		take(1, perHour(1000), 400)
		want("many at once", 1)
		take(2, perHour(10), 1)
		want("another partition", 0)
		take(1, algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 1, Window: int64(10 * time.Millisecond)}, 1)
		want("what is over soon", 0)
		long := Take{Key: in(s, 1, 7), Limit: logPerHour(20), Cost: 1}
		s.Decide([]Group{{Takes: []Take{long}}})
		want("a log", 1)
		s.Decide([]Group{{Takes: []Take{long, {Key: in(s, 2, 8), Limit: perHour(1), Cost: 2}}}})
		want("a denied group", 0)
		s.Decide([]Group{{Takes: []Take{long, {Key: in(s, 2, 8), Limit: perHour(10), Cost: 0}}, Peek: true}})
		want("a peek", 0)
		s.Follow(2, ToSuccessor)
		s.Decide([]Group{{Takes: []Take{{Key: in(s, 2, 8), Limit: perHour(10), Cost: 2}, {Key: in(s, 2, 9), Limit: perHour(10), Cost: 2}}}})
		want("several, which only a mover follows", 0)
	})
}
