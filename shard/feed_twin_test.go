package shard

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// difference returns a difference between a copy of partition p and s, except for expired counters and
// spared ones. It is empty if there is none.
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
				return fmt.Sprintf("%s: %+v, not %+v", what, e, x)
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
			return fmt.Sprintf("owner, long: %+v, not %+v", e, x)
		}
	}
	for key, e := range b.long {
		if e.expires > over(a.latest) && a.long[key] == nil {
			return fmt.Sprintf("copy, long: %+v", e)
		}
	}
	return ""
}

// rolled returns the contents of e at an instant, whenever it was last read.
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
	if err := checkLevels(s); err != nil {
		return err.Error()
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
		what: rapid.IntRange(0, 13).Draw(t, "what"),
		n:    rapid.IntRange(0, 1<<16).Draw(t, "n"),
		f:    Follower(rapid.IntRange(0, 1).Draw(t, "follower")),
	}
}), 1, 40)

// After any changes of a partition while its followers are given records in pieces, each follower has all
// of it in the end.
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

// A group's give-back empties a counter that a follower has, and a further take of the group needs its slot. The random steps
// above have found it, once in some thousand runs.
func TestFollowersLearnOfCountersThatAreDropped(t *testing.T) {
	steps := []followStep{{10, 65536, 0}, {2, 193, 0}, {8, 640, 1}, {12, 49, 1}, {0, 38059, 0}, {3, 3525, 0}, {0, 154, 1}}
	synctest.Test(t, func(t *testing.T) {
		if problem := checkFollowers(t, steps, 0x997, 1<<24); problem != "" {
			t.Error(problem)
		}
	})
}

// In a full shard a give-back has left a counter empty, which is expired at once on a whole second. The random steps above have found it once.
func TestFollowersOfExpiredCounters(t *testing.T) {
	steps := []followStep{{3, 48839, ToSuccessor}, {3, 12046, ToStandby}}
	synctest.Test(t, func(t *testing.T) {
		if problem := checkFollowers(t, steps, 0x3c, 12*MinBytes(1)); problem != "" {
			t.Error(problem)
		}
	})
}

// Changes that a follower was not given before it ended are marked still when changes are tracked for it again.
func TestFollowChangesAfterABacklog(t *testing.T) {
	ask := followStep{what: 0, n: 99}
	follow := followStep{what: 11}
	synctest.Test(t, func(t *testing.T) {
		if problem := checkFollowers(t, []followStep{ask, follow, ask, follow, ask}, 1, 1<<24); problem != "" {
			t.Error(problem)
		}
	})
}

func followLimits() []algorithms.Limit {
	short := algorithms.Limit{Algorithm: algorithms.FixedWindow, Limit: 10, Window: int64(100 * time.Millisecond)}
	second := algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 10, Window: int64(2 * time.Second)}
	return []algorithms.Limit{perHour(10), short, tokenBucketPerHour(10), second, logPerHour(10), slidingBucketsPerHour(10)}
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
		copies[f].Seal(0)
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
			if s.Unfollow(0, x.f); s.IsFollowing(0, x.f) {
				return "it follows still"
			}
		case 10: // it grows, and is moved a little only
			for i := range x.n % 2000 {
				ask(s, ring.Key{Hi: key("fresh", i).Hi}, perHour(10), 1)
			}
		case 11: // the standby has got everything in another way
			s.Unfollow(0, ToStandby)
			s.Follow(0, ToSuccessor)
			for more := true; more; {
				var records []byte
				records, more = s.Changes(0, ToSuccessor, nil, 1<<16)
				for _, copied := range copies {
					if err := copied.Apply(0, records); err != nil {
						return err.Error()
					}
				}
			}
			s.FollowChanges(0, ToStandby)
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
	if !s.IsFollowing(0, ToSuccessor) {
		s.Follow(0, ToSuccessor)
	}
	if !s.IsFollowing(0, ToStandby) {
		s.Follow(0, ToStandby)
	}
	s.Seal(0)
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
	s.Unseal(0)
	s.tentative[0] = tentativeLog{} // the next owner does not know which takes may be undone yet
	copies[ToSuccessor].Unseal(0)
	s.sweep(p) // an expired counter that is still there is its key's own, while the copy answers from the one that many share
	copies[ToSuccessor].sweep(&copies[ToSuccessor].partitions[0])
	for i := range 1000 {
		x := take(i)
		peek := func(s *Shard) algorithms.Decision {
			g := []Group{{Peek: true, Takes: []Take{x}}}
			s.Decide(g)
			return g[0].Takes[0].Decision
		}
		if a, b := peek(s), peek(copies[ToSuccessor]); a != b {
			return fmt.Sprintf("%+v: %+v, and the copy says %+v", x, a, b)
		}
	}
	return ""
}
