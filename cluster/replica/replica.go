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

// Step returns the replica after an event, and what its driver is to do, in this order. valid says whether the node's decision lease is
// valid. An event that does not concern the replica leaves it as it is.
//
//	event      in state            if                                        to
//	Adopt      any                 it is owner, of a term it decides in      Deciding
//	           any                 it is owner                               Waiting, and as Ended
//	           Deciding, Waiting   it is not owner                           Learning, or None without a copy
//	           Following           the term is another                       Learning
//	           Learning            the term is that of its copy              Following
//	                               it is a predecessor                       gives its final state
//	Feed       None to Waiting     it is as late as the copy                 Learning, Following if of the view's term, or Waiting
//	Final      Waiting             of a predecessor, of this term, valid     keeps the later copy; as Ended
//	Ended      Waiting             of a predecessor, valid                   Deciding, once each predecessor was heard
//	Ask        None to Following   of the owner, as its predecessor          gives its final state again
//	Posted     Deciding            valid, or about to end                    adds what is new of the deltas
//	           Following, Waiting  IsGrantable                               adds what is new of the deltas, apart from its version
//	Copied     Deciding            of the standby, of this term              answers the nodes whose deltas the standby has
//	Answered   None to Following   it has no role in the view                drops the deltas that the standby has
//	Drop       Learning, Following MayDrop                                   None
//	Resumed    Waiting             valid                                     as Ended
//	Salvaged   Waiting             of this term                              keeps the later copy
//	StandIn    None to Following   of another value                          is grantable, or what it was else
func (r Replica) Step(e Event, valid bool) (Replica, []Action) {
	switch e.Kind {
	case Adopt:
		return r.adopt(e, valid)
	case Feed:
		return r.feed(e)
	case Final:
		return r.final(e, valid)
	case Ended:
		return r.ended(e, valid)
	case Ask:
		return r, r.giveFinal(e.From)
	case Posted:
		return r.posted(e)
	case Copied:
		return r, r.answer(e)
	case Answered:
		return r.answered(e)
	case Drop:
		return r.drop()
	case Resumed:
		return r.resumed(valid)
	case Salvaged:
		return r.salvaged(e)
	case StandIn:
		return r.standIn(e.On), nil
	default:
		return r, nil
	}
}

// adopt takes over what a newer view says.
func (r Replica) adopt(e Event, valid bool) (Replica, []Action) {
	if e.Claim.Number <= r.Claim.Number {
		return r, nil
	}
	before := r.Claim
	r.Claim, r.StandsIn = e.Claim, false
	switch {
	case r.Claim.Owner != r.Self:
		r.Heard = nil
		if r.State == Deciding && slices.Contains(r.Claim.Predecessors, r.Self) {
			r.Gave = r.Claim.Term
		}
		r.follow()
		if before.Term == r.Claim.Term { // it has given it, or does; if that is lost, the owner asks
			return r, nil
		}
		return r, r.giveFinal(r.Claim.Owner)
	case r.State == Deciding && r.Claim.Term == r.Version.Term:
		return r, nil
	case r.State != Waiting || before.Term != r.Claim.Term:
		r.State, r.Heard, r.Gave = Waiting, nil, 0
	}
	return r.settle(nil, valid)
}

// follow sets the state of a node that is not the owner.
func (r *Replica) follow() {
	switch r.Version.Term {
	case 0:
		r.State = None
	case r.Claim.Term:
		r.State = Following
	default:
		r.State = Learning
	}
	if r.State != Learning || r.Gave != r.Claim.Term || r.Claim.Standby != r.Self {
		r.Gave = 0
	}
	if !r.IsGrantable() {
		r.Shared = nil
	}
}

// giveFinal returns the action by which a predecessor gives the owner its final state. It does not decide any more.
func (r *Replica) giveFinal(owner view.Life) []Action {
	if r.State >= Waiting || owner != r.Claim.Owner || !slices.Contains(r.Claim.Predecessors, r.Self) {
		return nil
	}
	return []Action{{Kind: SendFinal, To: owner, Term: r.Claim.Term, Version: r.Version, Acknowledged: r.Acknowledged}}
}

// feed takes over a copy, once all of it has arrived. Term and sequence say whether it is late enough; by which view it was sent does
// not matter, except for Complete.
func (r Replica) feed(e Event) (Replica, []Action) {
	if r.State == Deciding || e.Version.Term == 0 || r.Version.After(e.Version) {
		return r, nil
	}
	var actions []Action
	r, actions = r.install(e)
	if r.State != Waiting {
		r.follow()
	}
	if r.State == Following && e.From == r.Claim.Owner && e.Number == r.Claim.Number {
		r.Complete = r.Claim.Number
	}
	return r, actions
}

// install replaces the copy by that of an event, and drops the deltas that are in it. Those that were shared, and are not, are kept over it.
func (r Replica) install(e Event) (Replica, []Action) {
	r.Version, r.Acknowledged, r.Shared = e.Version, e.Acknowledged, r.Shared.beyond(e.Acknowledged)
	return r.trim([]Action{{Kind: Install}}, r.Acknowledged)
}

// trim drops the deltas that are in a copy, or that an owner has.
func (r Replica) trim(actions []Action, known Acknowledged) (Replica, []Action) {
	if first := known.Of(r.Grantor) + 1; first > r.Deltas.First && r.Deltas.Count() > 0 {
		r.Deltas.First = min(first, r.Deltas.Next)
		actions = append(actions, Action{Kind: TrimDeltas, Number: r.Deltas.First})
	}
	return r, actions
}

// final takes over the final state of a predecessor, if it is later than the copy.
func (r Replica) final(e Event, valid bool) (Replica, []Action) {
	if r.State != Waiting || !valid || e.Term != r.Claim.Term || !slices.Contains(r.Claim.Predecessors, e.From) {
		return r, nil
	}
	var actions []Action
	if e.Version.After(r.Version) {
		r, actions = r.install(e)
	}
	r.Heard = appendOnce(r.Heard, e.From)
	return r.settle(actions, valid)
}

// salvaged takes over a copy that is later than its own. No predecessor is heard by that.
func (r Replica) salvaged(e Event) (Replica, []Action) {
	if r.State != Waiting || e.Term != r.Claim.Term || !e.Version.After(r.Version) {
		return r, nil
	}
	return r.install(e)
}

// ended notes that a predecessor cannot decide any more, and that no final state of it will come.
func (r Replica) ended(e Event, valid bool) (Replica, []Action) {
	if r.State != Waiting || !valid || !slices.Contains(r.Claim.Predecessors, e.From) {
		return r, nil
	}
	r.Heard = appendOnce(r.Heard, e.From)
	return r.settle(nil, valid)
}

// standIn has the node grant from what it has, or no more.
func (r Replica) standIn(on bool) Replica {
	r.StandsIn = on && r.State < Waiting
	if !r.IsGrantable() {
		r.Shared = nil
	}
	return r
}

// resumed goes on where nothing but the decision lease was missing.
func (r Replica) resumed(valid bool) (Replica, []Action) {
	if r.State != Waiting {
		return r, nil
	}
	return r.settle(nil, valid)
}

// settle begins to decide, if each predecessor was heard and the decision lease is valid. Its own deltas are added to the copy, once.
func (r Replica) settle(actions []Action, valid bool) (Replica, []Action) {
	if !valid || slices.ContainsFunc(r.Claim.Predecessors, func(l view.Life) bool { return !slices.Contains(r.Heard, l) }) {
		return r, actions
	}
	r.Version.Term = r.Claim.Term
	for _, m := range r.Shared {
		if had := r.Acknowledged.Of(m.Life); m.Last > had {
			r.Acknowledged = r.Acknowledged.With(m.Life, m.Last)
			r.Version.Sequence += m.Last - had
		}
	}
	r.Shared = nil
	if r.Deltas.Count() > 0 {
		r, actions = r.add(actions, r.Grantor, r.Deltas)
		r, actions = r.trim(actions, r.Acknowledged)
	}
	r.State, r.Heard = Deciding, nil
	return r, actions
}

// add adds deltas of a grantor that are not in the copy yet.
func (r Replica) add(actions []Action, grantor view.Life, d Deltas) (Replica, []Action) {
	first := max(d.First, r.Acknowledged.Of(grantor)+1)
	if first >= d.Next {
		return r, actions
	}
	r.Acknowledged = r.Acknowledged.With(grantor, d.Next-1)
	r.Version.Sequence += d.Next - first
	return r, append(actions, Action{Kind: AddDeltas, To: grantor, Deltas: Deltas{first, d.Next}})
}

// posted adds deltas of another node.
func (r Replica) posted(e Event) (Replica, []Action) {
	switch {
	case r.IsGrantable():
		return r.share(e)
	case r.State != Deciding:
		return r, nil
	}
	return r.add(nil, e.From, e.Deltas)
}

// share adds deltas of a former standby to the copy, which does not become later by that: the owner has yet to add them.
func (r Replica) share(e Event) (Replica, []Action) {
	first := max(e.Deltas.First, r.Acknowledged.Of(e.From)+1, r.Shared.Of(e.From)+1)
	if first >= e.Deltas.Next {
		return r, nil
	}
	r.Shared = r.Shared.With(e.From, e.Deltas.Next-1)
	return r, []Action{{Kind: AddDeltas, To: e.From, Deltas: Deltas{first, e.Deltas.Next}}}
}

// answer tells the nodes whose deltas the standby has. The owner's own copy is not enough: it may die with it, and with the only one.
func (r *Replica) answer(e Event) (actions []Action) {
	if r.State != Deciding || e.From != r.Claim.Standby || e.Version.Term != r.Version.Term {
		return nil
	}
	for _, m := range e.Acknowledged {
		if m.Life != e.From && m.Life != r.Grantor {
			actions = append(actions, Action{Kind: SendAnswer, To: m.Life, Number: m.Last})
		}
	}
	return actions
}

// answered drops deltas that the standby has. A node with a role drops them only by a copy that has them.
func (r Replica) answered(e Event) (Replica, []Action) {
	if r.State >= Waiting || r.hasRole() {
		return r, nil
	}
	return r.trim(nil, Acknowledged{{r.Grantor, e.Number}})
}

// hasRole reports whether the newest view names the node for the partition.
func (r *Replica) hasRole() bool {
	return r.Claim.Owner == r.Self || r.Claim.Standby == r.Self || slices.Contains(r.Claim.Predecessors, r.Self)
}

// drop gives up a copy that is of no use any more.
func (r Replica) drop() (Replica, []Action) {
	if !r.MayDrop() {
		return r, nil
	}
	r.State, r.Version, r.Acknowledged, r.Shared, r.Complete = None, Version{}, nil, nil, 0
	return r, []Action{{Kind: Discard}}
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

func appendOnce(lives []view.Life, l view.Life) []view.Life {
	if slices.Contains(lives, l) {
		return lives
	}
	return append(slices.Clip(lives), l)
}
