// Package view provides views: the numbered tables that name the members of a cluster and the node that has each partition.
//
// A view names the node that has the counters of a partition, and changes only once that is true. The ring is a plan: where the
// counters should go. Next is the whole policy that leads from the one to the other, one change per partition and view.
// Ownership only ever passes to the standby, unless both are gone. The package is pure: no clock, no lock, no message.
package view

import (
	"cmp"
	"slices"
)

// Life is one life of a node: a later incarnation of the same id is another one. The zero value is no node.
type Life struct {
	ID          string
	Incarnation uint64 // rises with each start of a node of that id
}

func compareLives(a, b Life) int {
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Incarnation, b.Incarnation))
}

// State is what a member is, or what a node was seen to be.
type State uint8

// The states. A view has members that are Ready, Leaving or Gone.
const (
	Ready   State = iota // it may have partitions
	Leaving              // it is to have none, and still has some
	Left                 // it has ended by its own word
	Gone                 // it is not reached and has no etcd lease; in a view: it is named only because a partition may need its final state
)

// Member is a node in a view.
type Member struct {
	Life
	Address string // host:port
	State   State
}

// Partition is what a view says about one partition.
type Partition struct {
	// Owner is the node that decides, once it has settled. The zero value is no node; then the partition never had an owner.
	Owner Life
	// Term is the number of the view that named Owner, at least 1, at most the number of this view.
	Term uint64
	// Standby is the node with a complete copy, or the zero value. Standby != Owner.
	Standby Life
	// Predecessors are all that may have decided since the last owner settled, the earliest first. The owner waits for the final
	// state or the end of each. It is none of them. They are kept until a standby is named.
	Predecessors []Life
}

// View is the state that a cluster has agreed on. It is immutable: a change is a new View with a higher number.
type View struct {
	Number  uint64   // from 1, rises by one
	Members []Member // sorted by id and incarnation; at most one of an id is not Gone
	// Partitions are the partitions by number.
	Partitions []Partition
	Electorate
}

// IsMember reports whether a life is a member, and is not Gone.
func (v *View) IsMember(l Life) bool {
	i, found := v.index(l)
	return found && v.Members[i].State != Gone
}

func (v *View) index(l Life) (int, bool) {
	return slices.BinarySearchFunc(v.Members, l, func(m Member, l Life) int { return compareLives(m.Life, l) })
}

// current returns the life of the member of that id, and whether there is one.
func (v *View) current(id string) (Life, bool) {
	for _, m := range v.Members {
		if m.ID == id && m.State != Gone {
			return m.Life, true
		}
	}
	return Life{}, false
}

// Lives returns the members of a view that are not Gone.
func (v *View) Lives() (lives []Life) {
	for _, m := range v.Members {
		if m.State != Gone {
			lives = append(lives, m.Life)
		}
	}
	return lives
}

// staying returns the ids of the members that are Ready.
func (v *View) staying() (ids []string) {
	for _, m := range v.Members {
		if m.State == Ready {
			ids = append(ids, m.ID)
		}
	}
	return ids
}
