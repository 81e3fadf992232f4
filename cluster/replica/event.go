package replica

import (
	"slices"
	"strings"

	"github.com/weirlimit/weir/cluster/view"
)

// EventKind says what has happened.
type EventKind uint8

// The events, with the fields that they have.
const (
	Adopt    EventKind = iota + 1 // Claim: a newer view
	Feed                          // From, Number, Version, Acknowledged: all of a copy has arrived, of a sender with the view of that number
	Final                         // From, Term, Version, Acknowledged: the final state of a predecessor, for the owner of that term
	Ended                         // From: a predecessor has ended, as the decision lease says
	Ask                           // From: the owner asks for the final state
	Posted                        // From, Deltas: deltas of a node
	Copied                        // From, Version, Acknowledged: a node has that copy
	Answered                      // From, Number: the owner's standby has this node's deltas up to that one
	Drop                          // memory is wanted
	Resumed                       // the decision lease is valid again
	Salvaged                      // Term, Version, Acknowledged: a copy of a node that is no predecessor, for the owner of that term
)

// Event is something that a replica is told.
type Event struct {
	Kind         EventKind
	From         view.Life
	Claim        Claim
	Number       uint64
	Term         uint64
	Version      Version // the zero value: the sender has no copy
	Acknowledged Acknowledged
	Deltas       Deltas
}

// ActionKind says what a driver is to do.
type ActionKind uint8

// The actions, with the fields that they have.
const (
	Install       ActionKind = iota + 1 // replace the counters by those that came with the event
	AddDeltas                           // To, Deltas: add these deltas of that grantor to the counters
	TrimDeltas                          // Number: forget own deltas below that number
	SendFinal                           // To, Term, Version, Acknowledged: send the counters to the owner of that term
	SendAnswer                          // To, Number: tell a node up to which of its deltas are in the standby's copy
	ReportSettled                       // Term: the owner decides
	Discard                             // forget the counters
)

// Action is something that a driver is to do.
type Action struct {
	Kind         ActionKind
	To           view.Life
	Number       uint64
	Term         uint64
	Version      Version
	Acknowledged Acknowledged
	Deltas       Deltas
}

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
	case !found || a[i].Life.Incarnation < l.Incarnation:
		return 0
	case a[i].Life.Incarnation > l.Incarnation:
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

func (a Acknowledged) find(id string) (int, bool) {
	return slices.BinarySearchFunc(a, id, func(m Mark, id string) int { return strings.Compare(m.Life.ID, id) })
}
