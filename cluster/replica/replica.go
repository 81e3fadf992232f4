// Package replica provides the copy of a partition on a node as a state machine, and the decision lease: the right to decide with it.
//
// A Replica is a value. Step takes an event and returns the replica after it, with the actions that its driver is to carry out. The
// counters themselves are the driver's: a replica knows only how late its copy is and which deltas are in it. The decision lease is a
// value, too. Nothing here has a clock, a lock or a message.
package replica

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/cluster/view"
)

// State is what a node may do with its copy of a partition.
type State uint8

// The states.
const (
	None      State = iota // it has no copy
	Learning               // its copy is incomplete, or of another term than that of the view's owner
	Following              // its copy is complete, and of the term of the view's owner
	Waiting                // it is owner, and the final state or the end of a predecessor is missing
	Deciding               // it decides, unless its decision lease is suspended
)

// Version orders the copies of a partition. The zero value is that of no copy.
type Version struct {
	Term     uint64 // the view that named the owner whose counters these are
	Sequence uint64 // of the last change
}

// Compare returns whether a copy of version v is earlier than one of version w, -1, or later, 1.
func (v Version) Compare(w Version) int {
	return cmp.Or(cmp.Compare(v.Term, w.Term), cmp.Compare(v.Sequence, w.Sequence))
}

// After reports whether a copy of version v is later than one of version w.
func (v Version) After(w Version) bool { return v.Compare(w) > 0 }

// Claim is what a view says about one partition.
type Claim struct {
	Number uint64 // of the view
	view.Partition
}

// Copy is what a node has of the counters of a partition.
type Copy struct {
	// Version is that of the copy. State == None is equivalent to Version == Version{}, except that a Waiting one may have none.
	Version Version
	// Acknowledged are the deltas that are in the copy.
	Acknowledged Acknowledged
	// Shared are deltas that former standbys have posted to this node, as the standby, while they did not reach the owner. They are over the copy, beyond
	// Acknowledged. IsGrantable unless it is nil.
	Shared Acknowledged
	// Complete is the number of the last view in which the view's owner has fed it everything, 0 for none. Complete <= Claim.Number.
	Complete uint64
}

// Own is what a node has granted itself from its copy.
type Own struct {
	// Grantor is the life by which this node's deltas are numbered: the one that it was first, if a registry has counted it since.
	Grantor view.Life
	// Deltas are this node's own: those that it granted from its copy and that no owner is known to have.
	Deltas Deltas
}

// Replica is the copy of a partition on one life of a node.
type Replica struct {
	Self view.Life
	Own
	State State
	// Claim is what the newest view that the node has adopted says.
	// State >= Waiting implies Claim.Owner == Self, and Claim.Owner == Self implies State >= Waiting.
	// State == Deciding implies Version.Term == Claim.Term.
	// State == Following implies Version.Term == Claim.Term.
	Claim Claim
	Copy
	// Gave is the term of the owner to which it gave its final state as an owner that decided, 0 for none: its copy was complete then.
	// Gave > 0 implies State == Learning, Gave == Claim.Term and Claim.Standby == Self.
	Gave uint64
	// StandsIn says that it grants from what it has in the place of lives that are gone, in the view that Claim is of. Then State < Waiting.
	StandsIn bool
	// Heard are the predecessors whose final states it has, or that have ended: Heard is a subset of Claim.Predecessors while Waiting,
	// and empty else.
	Heard []view.Life
}

// hasRole reports whether the newest view names the node for the partition.
func (r *Replica) hasRole() bool {
	return r.Claim.Owner == r.Self || r.Claim.Standby == r.Self || slices.Contains(r.Claim.Predecessors, r.Self)
}

// IsFed reports whether the owner has fed this copy. It has decided then, so all that it has ever granted from a copy is in what it has.
func (r *Replica) IsFed() bool { return r.Version.Term == r.Claim.Term }

// MayDrop reports whether the copy is of no use: the view names another standby, the node does not stand in, has no deltas, and has not reported in
// this view that its copy is complete, by which the next view could name it.
func (r *Replica) MayDrop() bool {
	return (r.State == Learning || r.State == Following) && !r.StandsIn && !r.hasRole() && r.Claim.Standby != view.Life{} &&
		r.Deltas.Count() == 0 && r.Complete != r.Claim.Number
}

// Granted counts a change that the owner has made. The caller has seen that the state is Deciding and the decision lease is valid.
func (r Replica) Granted() Replica {
	r.Version.Sequence++
	return r
}

// MayGrantFromCopy reports whether the node may decide in the owner's place: a standby with a complete copy whose owner is not reached, or an owner
// that has a copy and waits for predecessors none of which is reached. One that is has all that was granted.
func (r *Replica) MayGrantFromCopy(reaches func(view.Life) bool) bool {
	if !r.IsGrantable() || r.State != Waiting {
		return r.IsGrantable() && !reaches(r.Claim.Owner)
	}
	return !slices.ContainsFunc(r.Claim.Predecessors, func(l view.Life) bool { return r.Lacks(l) && reaches(l) })
}

// IsGrantable reports whether the copy is one that the node may grant from while the owner, or a predecessor, is not reached. That of the former
// owner is, until the new one has fed it: the new one may die before. A node that stands in, or an owner that waits, grants from nothing if it has none.
func (r *Replica) IsGrantable() bool {
	return r.StandsIn || (r.State == Following || r.Gave > 0) && r.Claim.Standby == r.Self || r.State == Waiting
}

// Lacks reports whether the owner waits for the final state, or the end, of a predecessor.
func (r *Replica) Lacks(l view.Life) bool {
	return r.State == Waiting && slices.Contains(r.Claim.Predecessors, l) && !slices.Contains(r.Heard, l)
}

// GrantedFromCopy counts a delta that the node has granted from its copy, as MayGrantFromCopy allows, and returns its number.
func (r Replica) GrantedFromCopy() (after Replica, number uint64) {
	number = r.Deltas.Next
	r.Deltas.Next++
	return r, number
}

// Report returns what the node reports for views, by the view that it has adopted: whether it has settled as owner, and whether its copy is
// complete in that view.
func (r *Replica) Report() (settled, complete bool) {
	return r.State == Deciding, r.Complete > 0 && r.Complete == r.Claim.Number
}
