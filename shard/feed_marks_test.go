package shard

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/ring"
)

// marksProblem says which mark of a follower is neither in its list nor ahead of its scan, although stale does not say that there may be such marks.
func marksProblem(s *Shard, p *partition) string {
	for f := range Follower(followers) {
		x := p.follows[f]
		stale := p.stale&(1<<f) != 0
		inList := map[ring.Key]bool{}
		if x != nil {
			for _, k := range x.list {
				inList[k] = true
			}
		}
		for c := p.table.seek(s.arena, 0); ; c.i++ {
			e := c.next(s.arena)
			if e == nil {
				break
			}
			if e.share&(1<<f) == 0 {
				continue
			}
			if x == nil {
				if !stale {
					return fmt.Sprintf("follower %d: none, mark left, not stale", f)
				}
				continue
			}
			if !inList[e.key()] && !x.ahead(^e.hi) {
				return fmt.Sprintf("follower %d: mark neither in list nor ahead; stale %v scanning %v", f, stale, x.scanning)
			}
		}
		longs := map[*longEntry]bool{}
		if x != nil {
			for _, e := range x.longs {
				longs[e] = true
			}
		}
		for _, e := range p.long {
			if e.marks&(1<<f) == 0 {
				continue
			}
			if x == nil && !stale {
				return fmt.Sprintf("follower %d: none, long mark left, not stale", f)
			}
			if x != nil && !longs[e] {
				return fmt.Sprintf("follower %d: long mark not in list", f)
			}
		}
	}
	return ""
}

// In any order of what happens to a partition, a counter is marked for a follower only where that is known: a change of a marked one is not listed again.
func TestMarksAreKnown(t *testing.T) {
	for _, bytes := range []int{1 << 24, 12 * MinBytes(1)} {
		for seed := range uint64(30) {
			synctest.Test(t, func(t *testing.T) { playMarks(t, seed, bytes) })
		}
	}
}

// playMarks does what may happen to a partition, in an order by a seed, and looks at the marks after each step.
func playMarks(t *testing.T, seed uint64, bytes int) {
	r := rand.New(rand.NewPCG(seed, 77))
	limits := followLimits()
	s := newShardOf(t, Config{Partitions: 1, MaxBytes: bytes, MaxLongBytes: 40 * longOverhead})
	other := newShardOf(t, Config{Partitions: 1, MaxBytes: 1 << 24})
	p := &s.partitions[0]
	take := func(keys int) Take {
		i := r.IntN(keys)
		l := i % len(limits)
		return Take{Key: ring.Key{Hi: followKeys()[i], Lo: uint64(l) << 48}, Limit: limits[l], Cost: r.Int64N(8) - 2, Tentative: r.IntN(4) == 0}
	}
	var story []string
	var returned []Take
	for range 40 {
		f := Follower(r.IntN(2))
		keys := []int{20, 300, 12000}[r.IntN(3)]
		what := r.IntN(18)
		story = append(story, fmt.Sprint(what, " ", f))
		many := func(sh *Shard, n int, prov bool) {
			var gs []Group
			for range n {
				g := Group{Provisional: prov}
				for range 1 + r.IntN(3)*r.IntN(2) {
					g.Takes = append(g.Takes, take(keys))
				}
				gs = append(gs, g)
			}
			if n > 0 {
				sh.Decide(gs)
				if sh == s {
					returned = gs[0].Takes
				}
			}
		}
		switch what {
		case 0, 1, 2:
			many(s, 1+r.IntN(200), s.IsSealed(0))
		case 3:
			many(s, r.IntN(7000), s.IsSealed(0))
		case 4:
			s.Return(returned)
			returned = nil
		case 5:
			time.Sleep(time.Duration(r.IntN(2500)) * time.Millisecond)
		case 6:
			s.sweep(p)
		case 7:
			s.Follow(0, f)
		case 8:
			s.Unfollow(0, f)
		case 9, 10:
			s.FollowChanges(0, f)
		case 11:
			s.Seal(0)
		case 12:
			s.Unseal(0)
		case 13: // records of another
			s.Seal(0)
			many(other, 1+r.IntN(500), false)
			if !other.IsFollowing(0, f) || r.IntN(3) == 0 {
				other.Follow(0, f)
			}
			for range 1 + r.IntN(6) {
				records, _ := other.Changes(0, f, nil, 1+r.IntN(1<<15))
				if err := s.Apply(0, records); err != nil {
					t.Fatal(err)
				}
			}
		case 14:
			if r.IntN(4) == 0 {
				s.Clear(0)
			}
		case 15:
			grants := s.TakeGrants(0, 1+r.IntN(100))
			switch r.IntN(3) {
			case 0:
				s.Underway(0, grants)
			case 1:
				s.AddGrants(grants)
			case 2:
				s.AddGrantsToCopy(0, grants)
			}
		default:
			for range 1 + r.IntN(5) {
				s.Changes(0, f, nil, 1+r.IntN(20000))
			}
		}
		if problem := marksProblem(s, p); problem != "" {
			t.Errorf("seed %d, bytes %d: %s after %v", seed, bytes, problem, story)
			return
		}
	}
}
