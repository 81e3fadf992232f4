package view

import "slices"

// Restored returns a view of a higher number for an etcd that has lost v, which is the newest view that a node has adopted. Views after v may have been
// lost with it, so each member counts as a predecessor of each owner: it may have decided.
func Restored(v *View, number uint64) *View {
	next := *v
	next.Number, next.Partitions = number, make([]Partition, len(v.Partitions))
	next.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m Member) bool { return m.State == Gone })
	lives := v.Lives()
	for p := range next.Partitions {
		part := &v.Partitions[p]
		owner := part.Owner
		if !v.IsMember(owner) {
			owner = lives[p%len(lives)]
		}
		next.Partitions[p] = Partition{Owner: owner, Term: number}
		for _, l := range lives {
			if l != owner && len(next.Partitions[p].Predecessors) < maxPredecessors {
				next.Partitions[p].Predecessors = append(next.Partitions[p].Predecessors, l)
			}
		}
	}
	return &next
}

// Refounded returns a first view of that number, for a cluster that has lost its views while all nodes were stopped. The founder has counters of terms below
// number. Its earlier life is the predecessor of all partitions: the founder does not decide before it has had time to find later counters of others.
func Refounded(founder Member, number uint64, plan Plan) *View {
	v := First([]Member{founder}, plan)
	v.Number = number
	earlier := founder
	earlier.Incarnation--
	earlier.State = Gone
	for p := range v.Partitions {
		part := &v.Partitions[p]
		if part.Term = number; earlier.Incarnation > 0 {
			part.Predecessors = []Life{earlier.Life}
		}
	}
	if earlier.Incarnation > 0 {
		v.Members = append(v.Members, earlier)
		sortMembers(v.Members)
	}
	return v
}

// Renumbered returns v under a higher number, with new terms for all owners: views after v were lost, and a node that was stopped meanwhile has
// copies of their terms. Each standby precedes its owner, which feeds it again.
func Renumbered(v *View, number uint64) *View {
	next := *v
	next.Number, next.Partitions = number, slices.Clone(v.Partitions)
	for p := range next.Partitions {
		part := &next.Partitions[p]
		before := part.Standby
		part.Term, part.Standby = number, Life{}
		if before != (Life{}) && len(part.Predecessors) < maxPredecessors && !slices.Contains(part.Predecessors, before) {
			part.Predecessors = append(slices.Clip(part.Predecessors), before)
		}
	}
	return &next
}
