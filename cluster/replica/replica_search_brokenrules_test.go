package replica

import (
	"slices"

	"github.com/weirlimit/weir/cluster/view"
)

// rule is a rule of the protocol that a search can do without: then it must find a fault.
type rule string

const (
	noRule          rule = ""
	ruleLater       rule = "the later one of final state and own copy is kept"
	ruleAllBefore   rule = "all that decided since the last owner settled are predecessors"
	ruleReinstate   rule = "a predecessor that is a member becomes owner before another node begins with fresh counters"
	ruleReportKeeps rule = "a node keeps the copy that it has reported until it has adopted a later view"
	ruleStops       rule = "a predecessor stops to decide when it gives its final state"
	ruleWaits       rule = "an owner waits until a predecessor has ended"
	ruleOwnerFirst  rule = "a standby is not dropped while the owner is gone too"
	ruleKeepsDeltas rule = "a node keeps its copy as long as it has deltas"
	ruleOnce        rule = "deltas are added once"
	ruleComplete    rule = "only a node with a complete copy becomes standby"
	ruleSettled     rule = "planned changes wait until the owner has settled"
	ruleFarewell    rule = "a node that has said farewell grants nothing any more"
	ruleOwnTerm     rule = "an owner that is named again waits for the predecessors"
)

// step is Step without the broken rule.
func (s *search) step(r Replica, e Event, valid bool) (Replica, []Action) {
	before := r
	switch {
	case s.broken == ruleLater && e.Kind == Final:
		r.Version = Version{}
	case s.broken == ruleReportKeeps && e.Kind == Drop:
		r.Complete = 0
	case s.broken == ruleKeepsDeltas && e.Kind == Drop:
		r.Deltas.First = r.Deltas.Next
	case s.broken == ruleOnce && e.Kind == Posted:
		r.Acknowledged = nil
	}
	after, actions := r.Step(e, valid)
	switch {
	case after.Version == r.Version && s.broken == ruleLater:
		after.Version = before.Version
	case s.broken == ruleStops && e.Kind == Adopt && before.State == Deciding && after.State < Waiting && slices.Contains(after.Claim.Predecessors, after.Self):
		after.State = Deciding
	case s.broken == ruleOwnTerm && e.Kind == Adopt && before.State == Deciding && after.Claim.Owner == after.Self && after.State == Waiting:
		after.State, after.Version.Term = Deciding, after.Claim.Term
	}
	after.Claim = before.Claim
	if e.Kind == Adopt {
		after.Claim = e.Claim
	}
	return after, actions
}

// next is Next without the broken rule.
func (s *search) next(v *view.View, seen view.Seen, reports view.Reports, plan view.Plan) *view.View {
	given := *v
	given.Partitions = slices.Clone(v.Partitions)
	part := &given.Partitions[0]
	before := part.Predecessors
	if s.broken == ruleReinstate {
		part.Predecessors = nil
	}
	next, _ := view.Next(&given, seen, reports, plan)
	if next == nil {
		return nil
	}
	is := &next.Partitions[0]
	switch {
	case s.broken == ruleReinstate && is.Owner == part.Owner && is.Standby == view.Life{}:
		is.Predecessors = before
	case s.broken == ruleReinstate && is.Owner != part.Owner && is.Standby == view.Life{}:
		for _, l := range before {
			if l != is.Owner && !slices.Contains(is.Predecessors, l) {
				is.Predecessors = append(is.Predecessors, l)
			}
		}
	case s.broken == ruleAllBefore && len(is.Predecessors) > 1:
		is.Predecessors = is.Predecessors[len(is.Predecessors)-1:]
	case s.broken == ruleOwnerFirst && is.Owner != part.Owner && is.Owner == part.Standby && len(is.Predecessors) > 0:
		*is = *part
		is.Standby = view.Life{}
	}
	return next
}
