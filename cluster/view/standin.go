package view

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// StandIn returns the life that grants from its copy of a partition while no view follows v: its owner has said farewell, and v names no standby. That is
// the Learner, if it is reported to have a complete copy, so that all nodes agree on it. It is the zero value for none.
func (v *View) StandIn(p int, plan Plan, farewells []Life, reports Reports) Life {
	part := &v.Partitions[p]
	if part.Standby != (Life{}) || !slices.Contains(farewells, part.Owner) {
		return Life{}
	}
	l := v.Learner(p, plan[p])
	if slices.Contains(farewells, l) || !reports.complete(v, p, l) {
		return Life{}
	}
	return l
}

// LastResort returns the life that grants from what it has of a partition of which all are gone that may have a copy of what was granted last: owner, standby
// and predecessors. That is a later life of one of them, which may have a snapshot; or the Learner, if it is reported to have a complete copy; or else that one
// of those that serve which has the highest rank, so that a change of members moves few partitions (Thaler and Ravishankar, 1998: rendezvous hashing). IsGone
// reports whether a life is gone. It is the zero value for none.
func (v *View) LastResort(p int, plan Plan, reports Reports, isGone func(Life) bool, serving Serving) Life {
	part := &v.Partitions[p]
	for l := range part.holders {
		if !isGone(l) {
			return Life{}
		}
	}
	for l := range part.holders {
		if later, is := v.Current(l.ID); is && serving.has(later) {
			return later
		}
	}
	if l := v.Learner(p, plan[p]); l != (Life{}) && serving.has(l) && reports.complete(v, p, l) {
		return l
	}
	return serving.first(p)
}

// Serving are the members that may be a LastResort. Make it with ServingOf.
type Serving struct {
	lives []Life
	ranks []uint64 // a hash of each one's id
}

// ServingOf returns those members of a view of which serves is true.
func (v *View) ServingOf(serves func(Life) bool) (s Serving) {
	for _, m := range v.Members {
		if m.State != Gone && serves(m.Life) {
			s.lives, s.ranks = append(s.lives, m.Life), append(s.ranks, xxhash.Sum64String(m.ID))
		}
	}
	return s
}

// Equal reports whether they are the same.
func (s *Serving) Equal(o Serving) bool { return slices.Equal(s.lives, o.lives) }

func (s *Serving) has(l Life) bool { return slices.Contains(s.lives, l) }

// first returns the one with the highest rank for a partition.
func (s *Serving) first(p int) (first Life) {
	best := uint64(0)
	for i, rank := range s.ranks {
		if mixed := mix(rank ^ uint64(p)); first == (Life{}) || mixed > best {
			first, best = s.lives[i], mixed
		}
	}
	return first
}

// mix returns another number for each, of which all bits depend on all (SplitMix64: Steele et al., 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// holders yields the owner, the standby and the predecessors, as far as there are any.
func (p *Partition) holders(yield func(Life) bool) {
	for _, l := range [...]Life{p.Owner, p.Standby} {
		if l != (Life{}) && !yield(l) {
			return
		}
	}
	for _, l := range p.Predecessors {
		if !yield(l) {
			return
		}
	}
}

// IsReplaced reports whether a later life of a node is a member.
func (v *View) IsReplaced(l Life) bool {
	later, is := v.Current(l.ID)
	return is && later.Incarnation > l.Incarnation
}
