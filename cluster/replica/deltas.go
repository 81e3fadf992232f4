package replica

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/cluster/view"
)

// Deltas are numbers of grants that a node has made from its copy: First <= n < Next. Each life numbers its own from 1.
type Deltas struct{ First, Next uint64 }

// Count returns how many there are.
func (d Deltas) Count() uint64 { return d.Next - d.First }

// Acknowledged says by life up to which of its deltas are in a copy. It is sorted by id, has one entry for an id, that of the latest life
// which has posted deltas, and is immutable.
type Acknowledged []Mark

// Mark is an entry of Acknowledged.
type Mark struct {
	Life view.Life
	Last uint64 // the number of the last delta that is in the copy
}

// Of returns the number of the last delta of a life that is in the copy, 0 if none is. All of an earlier life than the one
// that is noted count as in it: that life has ended, and what it posted was added or is lost with it.
func (a Acknowledged) Of(l view.Life) uint64 {
	i, found := a.find(l.ID)
	switch {
	case !found || a[i].Life.Before(l):
		return 0
	case l.Before(a[i].Life):
		return ^uint64(0) - 1
	default:
		return a[i].Last
	}
}

// With returns marks with one more.
func (a Acknowledged) With(l view.Life, last uint64) Acknowledged {
	i, found := a.find(l.ID)
	if found {
		a = slices.Clone(a)
		a[i] = Mark{l, last}
		return a
	}
	return slices.Insert(slices.Clone(a), i, Mark{l, last})
}

// beyond returns the marks of a whose last deltas are not among those of other.
func (a Acknowledged) beyond(other Acknowledged) (rest Acknowledged) {
	for _, m := range a {
		if m.Last > other.Of(m.Life) {
			rest = append(rest, m)
		}
	}
	return rest
}

func (a Acknowledged) find(id string) (int, bool) {
	return slices.BinarySearchFunc(a, id, func(m Mark, id string) int { return strings.Compare(m.Life.ID, id) })
}
