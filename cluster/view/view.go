// Package view provides views: the numbered tables that name the members of a cluster and the node that has each partition.
//
// A view names the node that has the counters of a partition, and changes only once that is true. The ring is a plan: where the
// counters should go. Next is the whole policy that leads from the one to the other, one change per partition and view.
// Ownership only ever passes to the standby, unless both are gone. The package is pure: no clock, no lock, no message.
package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Life is one life of a node: a later incarnation of the same id is another one. The zero value is no node.
type Life struct {
	ID          string `json:"id"`
	Incarnation uint64 `json:"incarnation"` // rises with each start of a node of that id, from 1
}

// Uncounted marks the incarnations of lives that began without their registry, which has not counted them: see UncountedIncarnation.
const Uncounted = 1 << 63

// The bits of such an incarnation, from the lowest on: random ones, as two nodes may be started with one id by mistake, the time of the start in tenths of a second
// since 1970, and the last incarnation that was counted before.
const (
	saltBits    = 6
	startBits   = 36
	countedBits = 63 - startBits - saltBits
)

// UncountedIncarnation returns the incarnation of a life that begins without its registry, which has counted its former ones up to counted. It is above all that are
// counted, and no view names it. Two are the same only if a node is started twice within a tenth of a second, and then seldom. Life.Before has its place among
// the others.
func UncountedIncarnation(counted uint64, start time.Time, random uint64) uint64 {
	tenths := uint64(start.UnixMilli()) / 100 & (1<<startBits - 1)
	return Uncounted | min(counted, 1<<countedBits-1)<<(startBits+saltBits) | tenths<<saltBits | random&(1<<saltBits-1)
}

// Before reports whether l is an earlier life of the node than other. An uncounted life is later than those that were counted before it began, and earlier than
// all that are counted afterwards.
func (l Life) Before(other Life) bool {
	return cmp.Or(cmp.Compare(l.counted(), other.counted()), cmp.Compare(l.Incarnation, other.Incarnation)) < 0
}

// counted returns the incarnation that was counted last when the life began.
func (l Life) counted() uint64 {
	if l.Incarnation < Uncounted {
		return l.Incarnation
	}
	return l.Incarnation &^ Uncounted >> (startBits + saltBits)
}

// name returns the id, and the incarnation if that is not the first: a, then a@2. It is not String, which members and reports would have, too.
func (l Life) name() string {
	if l.Incarnation == 1 {
		return l.ID
	}
	return fmt.Sprintf("%s@%d", l.ID, l.Incarnation)
}

func compareLives(a, b Life) int {
	if order := strings.Compare(a.ID, b.ID); order != 0 {
		return order
	}
	return cmp.Compare(a.Incarnation, b.Incarnation)
}

// State is what a member is, or what a node was seen to be.
type State uint8

// The states. A view has members that are Ready, Leaving or Gone.
const (
	Ready   State = iota // it may have partitions
	Leaving              // it is to have none, and still has some
	Left                 // it has ended by its own word
	Gone                 // it is not reached and has no etcd lease; in a view: it is no member, and its address is kept because a partition names it
)

var stateNames = [...]string{"ready", "leaving", "left", "gone"}

func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// stateNamed is the inverse of String.
func stateNamed(name string) (State, error) {
	i := slices.Index(stateNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("state: %q is not ready, leaving or gone", name)
	}
	return State(i), nil
}

// Member is a node in a view.
type Member struct {
	Life
	Address string // host:port
	State   State
}

// Partition is what a view says about one partition.
type Partition struct {
	// Owner is the node that decides, once it has settled. It may be Gone while no other can take its place. The zero value is no node:
	// only a view that is not to be stored has that.
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
	Members []Member // sorted by id and incarnation; at most one of an id is not Gone, at least one is Ready; all lives that Partitions name
	// Partitions are the partitions by number.
	Partitions []Partition
	Electorate
}

func sortMembers(members []Member) {
	slices.SortFunc(members, func(a, b Member) int { return compareLives(a.Life, b.Life) })
}

// IsMember reports whether a life is a member, and is not Gone.
func (v *View) IsMember(l Life) bool {
	i, found := v.index(l)
	return found && v.Members[i].State != Gone
}

// IsLeaving reports whether a life is a member that leaves.
func (v *View) IsLeaving(l Life) bool {
	i, found := v.index(l)
	return found && v.Members[i].State == Leaving
}

func (v *View) index(l Life) (int, bool) {
	return findLife(v.Members, func(m *Member) *Life { return &m.Life }, l)
}

// findLife returns where a life is in a list that is sorted by lives, or where it would be. It does what slices.BinarySearchFunc does, without copies of the
// elements: it is called several times for each partition of each view.
func findLife[E any](list []E, lifeOf func(*E) *Life, l Life) (i int, found bool) {
	end := len(list)
	for i < end {
		middle := (i + end) / 2
		switch order := compareLives(*lifeOf(&list[middle]), l); {
		case order == 0:
			return middle, true
		case order < 0:
			i = middle + 1
		default:
			end = middle
		}
	}
	return i, false
}

// Current returns the life of the member of that id, and whether there is one.
func (v *View) Current(id string) (Life, bool) {
	i, _ := v.index(Life{ID: id})
	for ; i < len(v.Members) && v.Members[i].ID == id; i++ {
		if v.Members[i].State != Gone {
			return v.Members[i].Life, true
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

// LivesOf returns the lives of an id that are members, or that the view waits for or has given up: those that may still decide. v may be nil.
func (v *View) LivesOf(id string) (lives []Life) {
	if v == nil {
		return nil
	}
	for _, l := range slices.Concat(v.Lives(), v.Before, v.GivenUp) {
		if l.ID == id && !slices.Contains(v.Ended, l) && !slices.Contains(lives, l) {
			lives = append(lives, l)
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

// Names reports whether a view names a life as a member, or as a predecessor that is Gone.
func (v *View) Names(l Life) bool {
	_, found := v.index(l)
	return found
}
