package replica

import (
	"slices"

	"github.com/weirlimit/weir/cluster/view"
)

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

// drop gives up a copy that is of no use any more.
func (r Replica) drop() (Replica, []Action) {
	if !r.MayDrop() {
		return r, nil
	}
	r.State, r.Version, r.Acknowledged, r.Shared, r.Complete = None, Version{}, nil, nil, 0
	return r, []Action{{Kind: Discard}}
}

func appendOnce(lives []view.Life, l view.Life) []view.Life {
	if slices.Contains(lives, l) {
		return lives
	}
	return append(slices.Clip(lives), l)
}
