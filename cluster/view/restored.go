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
