package shard

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
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

// difference says where a copy of partition p differs from what s has, but for what is over and
// for what is spared. It is empty if nowhere.
func difference(s, copied *Shard, p uint32, spared func(ring.Key) bool) string {
	a, b := &s.partitions[p], &copied.partitions[p]
	if a.latest != b.latest || a.sharing != b.sharing {
		return fmt.Sprintf("clocks %d and %d, sharing until %d and %d", a.latest, b.latest, a.sharing, b.sharing)
	}
	one := func(what string, s *Shard, a *partition, other *Shard, b *partition) string {
		for c := a.table.seek(s.arena, 0); ; c.i++ {
			e := c.next(s.arena)
			if e == nil {
				return ""
			}
			if e.expires <= over(a.latest) || spared(e.key()) {
				continue
			}
			x := b.table.find(other.arena, e.key())
			if x == nil || x.state != e.state || x.usage() != e.usage() {
				return fmt.Sprintf("%s: %+v, beside %+v", what, e, x)
			}
		}
	}
	if d := one("owner", s, a, copied, b); d != "" {
		return d
	}
	if d := one("copy", copied, b, s, a); d != "" {
		return d
	}
	for key, e := range a.long {
		x := b.long[key]
		if e.expires > over(a.latest) && (x == nil || x.usage != e.usage || e.rolled(a.latest) != x.rolled(a.latest)) {
			return fmt.Sprintf("owner, long: %+v, beside %+v", e, x)
		}
	}
	for key, e := range b.long {
		if e.expires > over(a.latest) && a.long[key] == nil {
			return fmt.Sprintf("copy, long: %+v", e)
		}
	}
	return ""
}

// rolled returns what e holds at an instant, whenever somebody has last looked at it.
func (e *longEntry) rolled(now int64) string {
	l := logPerHour(10)
	if n := int(e.key.Lo >> 48); n < len(followLimits()) { // see checkFollowers
		l = followLimits()[n]
	}
	e.counter.Step(&l, now, 0, false)
	return string(e.counter.AppendBinary(nil))
}

// consistent says what is counted wrongly in s.
func consistent(s *Shard) string {
	n, bytes := 0, int64(0)
	for i := range s.partitions {
		n += s.partitions[i].table.n + len(s.partitions[i].long)
		for _, e := range s.partitions[i].long {
			bytes += int64(longOverhead + e.counter.Bytes())
		}
	}
	if n != s.Len() || bytes != s.longBytes.Load() {
		return fmt.Sprintf("%d counters, counted are %d; %d bytes, counted are %d", n, s.Len(), bytes, s.longBytes.Load())
	}
	return ""
}

// followStep is one thing that happens in TestFollowersHaveEverything; what the numbers mean
// depends on what.
type followStep struct {
	what, n int
	f       Follower
}

var followSteps = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) followStep {
	return followStep{
		what: rapid.IntRange(0, 12).Draw(t, "what"),
		n:    rapid.IntRange(0, 1<<16).Draw(t, "n"),
		f:    Follower(rapid.IntRange(0, 1).Draw(t, "follower")),
	}
}), 1, 40)

// Whatever happens to a partition while its followers are given what they have not got, in pieces,
// in the end each has all of it.
func TestFollowersHaveEverything(t *testing.T) {
	for name, bytes := range map[string]int{"roomy": 1 << 24, "full": 12 * MinBytes(1)} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				steps := followSteps.Draw(rt, "steps")
				seed := rapid.Uint64().Draw(rt, "seed")
				var problem string
				synctest.Test(t, func(t *testing.T) { problem = checkFollowers(t, steps, seed, bytes) })
				if problem != "" {
					rt.Fatal(problem)
				}
			})
		})
	}
}

func followLimits() []algorithms.Limit {
	short := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 10, Window: int64(100 * time.Millisecond)}
	second := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 10, Window: int64(2 * time.Second)}
	return []algorithms.Limit{perHour(10), short, bucketPerHour(10), second, logPerHour(10), bucketsPerHour(10)}
}

var followKeys = sync.OnceValue(func() (his [12_000]uint64) {
	for i := range his {
		his[i] = key("k", i).Hi
	}
	return his
})

// sparedBy returns whether follower f need not know a key of one of followLimits, whose number is
// in the key.
func sparedBy(f int) func(ring.Key) bool {
	return func(k ring.Key) bool { return f == int(ToStandby) && (k.Lo>>48 == 1 || k.Lo>>48 == 3) }
}

func checkFollowers(t testing.TB, steps []followStep, seed uint64, bytes int) string {
	limits := followLimits()
	r := rand.New(rand.NewPCG(seed, 0))
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: bytes, MaxLongBytes: 40 * longOverhead})
	var copies [followers]*Shard
	for f := range copies {
		copies[f] = newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24})
		copies[f].Close(0)
	}
	p := &s.partitions[0]
	take := func(i int) Take {
		l := i % len(limits)
		k := ring.Key{Hi: followKeys()[i], Lo: uint64(l) << 48} // tells spared ones
		return Take{Key: k, Limit: limits[l], Cost: r.Int64N(8) - 2, Tentative: r.IntN(4) == 0}
	}
	var returned []Take
	var took time.Duration
	for _, x := range steps {
		keys := []int{20, 300, len(followKeys())}[x.n%3]
		group := func(takes int) Group {
			g := Group{}
			for range takes {
				g.Takes = append(g.Takes, take(r.IntN(keys)))
			}
			return g
		}
		many := func(n int) (groups []Group) {
			for range n {
				groups = append(groups, group(1+r.IntN(3)*r.IntN(2)))
			}
			return groups
		}
		switch x.what {
		case 0, 1, 2:
			groups := many(1 + x.n%100)
			s.Decide(groups)
			returned = groups[0].Takes
		case 3: // more than a list holds
			s.Decide(many(x.n % 7000))
		case 4:
			s.Return(returned)
			returned = nil
		case 5:
			resets := many(x.n % 200)
			for i := range resets {
				resets[i].Reset = true
			}
			s.Decide(resets)
		case 6:
			if took < time.Minute { // the hours do not end
				d := time.Duration(x.n%3000) * time.Millisecond
				took += d
				time.Sleep(d)
			}
		case 7:
			s.sweep(p)
			copies[x.f].sweep(&copies[x.f].partitions[0])
		case 8:
			s.Follow(0, x.f)
		case 9:
			if s.Unfollow(0, x.f); s.Follows(0, x.f) {
				return "it follows still"
			}
		case 10: // it grows, and is moved a little only
			for i := range x.n % 2000 {
				ask(s, ring.Key{Hi: key("fresh", i).Hi}, perHour(10), 1)
			}
		default:
			for range 1 + x.n%5 {
				if _, err := pull(s, copies[x.f], 0, x.f, 1+x.n%20_000); err != nil {
					return err.Error()
				}
			}
		}
		for f, x := range p.follows {
			if x != nil && (len(x.list) > maxChanges || len(x.longs) > maxChanges+len(p.long)+1) {
				return fmt.Sprintf("follower %d has lists of %d and %d", f, len(x.list), len(x.longs))
			}
		}
	}
	if !s.Follows(0, ToMover) {
		s.Follow(0, ToMover)
	}
	if !s.Follows(0, ToStandby) {
		s.Follow(0, ToStandby)
	}
	s.Close(0)
	for f, copied := range copies {
		drain(t, s, copied, 0, Follower(f))
		if p.follows[f].left() {
			return "there is more"
		}
		if d := difference(s, copied, 0, sparedBy(f)); d != "" {
			return fmt.Sprintf("follower %d: %s", f, d)
		}
		if d := consistent(copied); d != "" {
			return d
		}
	}
	if d := consistent(s); d != "" {
		return d
	}
	s.Open(0)
	copies[ToMover].Open(0)
	for i := range 1000 {
		x := take(i)
		peek := func(s *Shard) algorithms.Decision {
			g := []Group{{Peek: true, Takes: []Take{x}}}
			s.Decide(g)
			return g[0].Takes[0].Decision
		}
		if a, b := peek(s), peek(copies[ToMover]); a != b {
			return fmt.Sprintf("%+v: %+v, and the copy says %+v", x, a, b)
		}
	}
	return ""
}

// While others decide, what they have counted when the gate closes is all in the copy.
func TestFollowWhileDeciding(t *testing.T) {
	s := newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 22})
	var copies [followers]*Shard
	for f := range copies {
		copies[f] = newShardOf(t, Config{Partitions: 2, MaxBytes: 1 << 24})
		copies[f].Close(0)
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
	s.Close(0)
	close(stop)
	deciding.Wait() // of those that have found it closed, some have moved its clock
	for f, copied := range copies {
		drain(t, s, copied, 0, Follower(f))
		if d := difference(s, copied, 0, sparedBy(f)); d != "" {
			t.Errorf("follower %d: %s", f, d)
		}
	}
}

// Whatever changes a counter is told, and once.
func TestEveryChangeIsTold(t *testing.T) {
	hour, bucket, log := perHour(10), bucketPerHour(10), logPerHour(10)
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
		{"refunds beside each other", group(take(0, hour, -1), take(2, log, -1)), 2},
		{"a lowered limit", group(take(1, lowered, 0)), 1},
		{"a lowered limit beside another", group(take(1, lowered, 0), take(5, lowered, 0)), 1},
		{"a reset", func(s *Shard, last []Take) { s.Decide([]Group{{Takes: last, Reset: true}}) }, 3},
		{"what is returned", func(s *Shard, last []Take) { s.Return(last) }, 3},
		{"a refund that is returned", func(s *Shard, last []Take) {
			for i := range last {
				last[i].Cost = -1
			}
			s.Return(last)
		}, 3},
		{"a loan's rest", func(s *Shard, last []Take) {
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
			copied.Close(0)
			g := []Group{{Takes: []Take{take(0, hour, 2), take(1, bucket, 2), take(2, log, 2)}}}
			s.Decide(g)
			for f := range Follower(followers) {
				s.Follow(0, f)
				drain(t, s, copied, 0, f)
			}
			tc.change(s, g[0].Takes)
			for f, x := range s.partitions[0].follows {
				if n := len(x.list) + len(x.longs); tc.told >= 0 && n != tc.told || n == 0 {
					t.Errorf("%s: follower %d is told of %d, want %d", tc.name, f, n, tc.told)
				}
			}
			tc.change(s, g[0].Takes)
			s.Close(0)
			drain(t, s, copied, 0, ToMover)
			s.Follow(0, ToMover) // forgets its marks
			drain(t, s, copied, 0, ToStandby)
			if d := difference(s, copied, 0, func(ring.Key) bool { return false }); d != "" {
				t.Errorf("%s: %s", tc.name, d)
			}
		})
	}
}

// A follower that has everything is given nothing; one of a closed partition the clock.
func TestNothingToTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShard(t), newShard(t)
		a := takeOf("a", perHour(10), 1)
		p := a.Key.Partition(1021)
		copied.Close(p)
		if records, more := s.Changes(p, ToMover, []byte("x"), 1<<16); string(records) != "x" || more {
			t.Errorf("nobody follows: %q, %t", records, more)
		}
		s.Follow(p, ToMover)
		drain(t, s, copied, p, ToMover)
		ask(s, a.Key, a.Limit, 0)
		for _, denied := range []Group{
			{Takes: []Take{takeOf("a", perHour(10), 11)}},
			{Takes: []Take{a, {Key: a.Key, Limit: a.Limit, Cost: 10}}},
			{Takes: []Take{takeOf("a", logPerHour(10), 1), a, {Key: a.Key, Limit: a.Limit, Cost: 10}}},
			{Takes: []Take{a}, Peek: true},
		} {
			s.Decide([]Group{denied})
		}
		if records, more := s.Changes(p, ToMover, nil, 1<<16); len(records) != 0 || more {
			t.Errorf("nothing was counted: %q, %t", records, more)
		}
		time.Sleep(time.Second)
		ask(s, a.Key, a.Limit, 0)
		s.Close(p)
		drain(t, s, copied, p, ToMover)
		if at := copied.partitions[p].latest; at != s.partitions[p].latest {
			t.Errorf("the clock of the copy shows %d, the owner's %d", at, s.partitions[p].latest)
		}
	})
}

// Who is far behind begins again, from where he was: however far behind he is each time, he gets
// round.
func TestFollowerThatIsFarBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24})
		copied.Close(0)
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
		s.Follow(0, ToMover)
		drain(t, s, copied, 0, ToMover)
		x := s.partitions[0].follows[ToMover]
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
			if _, err := pull(s, copied, 0, ToMover, 1<<16); err != nil || rounds > 2*keys*slotBytes>>16 {
				t.Fatalf("%d rounds, %v", rounds, err)
			}
			change(maxChanges+1000, rounds)
		}
		if n := testutil.ToFloat64(s.metrics.restarts); n < 3 {
			t.Errorf("it was too far behind %v times in %d rounds", n, rounds)
		}
		s.Close(0)
		drain(t, s, copied, 0, ToMover)
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

// A standby is spared what will be over before it would need it.
func TestStandbyIsSparedBriefCounters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		copied.Close(0)
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
		ask(s, key("k", 3), bucketPerHour(10), 5)
		known(3)
		ask(s, key("k", 3), bucketPerHour(10), -5)
		drain(t, s, copied, 0, ToStandby)
		copied.Open(0)
		if d := ask(copied, key("k", 3), bucketPerHour(10), 0); d.Remaining != 10 {
			t.Errorf("a refund is not known: %+v", d)
		}
	})
}

// A counter that was reset and has begun again, briefly, is not what it was.
func TestStandbyKnowsOfResets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, copied := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20}), newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 20})
		copied.Close(0)
		s.Follow(0, ToStandby)
		fast := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Second), Burst: 1000}
		ask(s, key("k", 0), fast, 1000)
		drain(t, s, copied, 0, ToStandby)
		s.Decide([]Group{{Reset: true, Takes: []Take{{Key: key("k", 0), Limit: fast}}}})
		ask(s, key("k", 0), fast, 1)
		drain(t, s, copied, 0, ToStandby)
		copied.Open(0)
		if d := ask(copied, key("k", 0), fast, 0); d.Remaining < 999 {
			t.Errorf("%+v", d)
		}
	})
}

func TestUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShardOf(t, Config{Partitions: 3, MaxBytes: MinBytes(3)})
		var told []uint32
		s.OnUrgent(func(p uint32) {
			s.Follows(p, ToStandby) // no lock is held
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
		want("nobody follows", 0)
		s.Follow(1, ToMover)
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
		s.Follow(2, ToMover)
		s.Decide([]Group{{Takes: []Take{{Key: in(s, 2, 8), Limit: perHour(10), Cost: 2}, {Key: in(s, 2, 9), Limit: perHour(10), Cost: 2}}}})
		want("several, which only a mover follows", 0)
	})
}

// What many share has the same key on all nodes, and another for every limit.
func TestSharedKey(t *testing.T) {
	calendar, err := algorithms.NewCalendar("month", "Europe/Paris", 15)
	if err != nil {
		t.Fatal(err)
	}
	base := algorithms.Limit{Algorithm: algorithms.TokenBucket, Limit: 10, Window: int64(time.Hour), Burst: 5}
	all := map[ring.Key]algorithms.Limit{}
	for _, change := range []func(l *algorithms.Limit){
		func(*algorithms.Limit) {},
		func(l *algorithms.Limit) { l.Algorithm = algorithms.GCRA },
		func(l *algorithms.Limit) { l.Limit++ },
		func(l *algorithms.Limit) { l.Window++ },
		func(l *algorithms.Limit) { l.Burst++ },
		func(l *algorithms.Limit) { l.Buckets++ },
		func(l *algorithms.Limit) { l.Calendar = calendar },
	} {
		l := base
		change(&l)
		all[sharedKey(&l)] = l
	}
	if len(all) != 7 {
		t.Errorf("%d keys for 7 limits", len(all))
	}
	if patient := (algorithms.Limit{Algorithm: algorithms.LeakyBucket, Limit: 10, Window: base.Window}); sharedKey(&patient) != sharedKey(new(patient.WaitAtMost(0))) {
		t.Error("who cannot wait has another counter")
	}
	if got := sharedKey(&base); got != (ring.Key{Hi: 0xb1f2d26761a85c55}) {
		t.Errorf("%x, which nodes of other versions do not find", got.Hi)
	}
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
