package view

import "slices"

// Seen is what the writer of views sees of the nodes.
type Seen struct {
	// Nodes are the nodes that it knows something of, in any order. Those that are to join are Ready, and were admitted. Members that it
	// knows nothing of stay as they are.
	Nodes []Member
	// Most is how many members may be Ready, at most; 0 for any number.
	Most int
	// Overdue says that half of Before was waited for in vain.
	Overdue bool
	// Silent are the lives that it does not reach. What they have reported may be over: nothing planned is given to them, or taken from them.
	Silent []Life
	// Farewells are lives that have said farewell: they have left, although they may still be registered. None of them grants or confirms a decision
	// lease again.
	Farewells []Life
	// Unconnected are pairs of lives of which one does not reach the other: what the one has does not pass to the other.
	Unconnected []Pair
}

// Pair are two lives, in any order.
type Pair [2]Life

// Urgency says when a view is to be written.
type Urgency uint8

// The urgencies, by rank.
const (
	Nothing Urgency = iota // there is nothing to write
	Planned                // it moves something that works: at most one such view a second
	Urgent                 // it replaces something that does not work, or a node waits to leave: at once
)

// First returns the first view of a cluster, with members that are Ready. The partitions are where the plan wants them, with fresh
// counters and without standbys: these are named once they have copies.
func First(members []Member, plan Plan) *View {
	v := &View{Number: 1, Members: slices.Clone(members), Partitions: make([]Partition, len(plan))}
	sortMembers(v.Members)
	v.Changed = 1
	for p := range v.Partitions {
		owner, _ := v.Current(plan[p].Owner)
		v.Partitions[p] = Partition{Owner: owner, Term: 1}
	}
	return v
}

// Next returns the view that follows v, or nil and Nothing. plan is that of the members of v that stay. Next changes neither of its arguments.
//
// Members come first, then at most one change per partition:
//
//	the owner is gone             its standby is promoted
//	owner and standby are gone    the learner goes on from its copy, if that is complete; else the earliest predecessor that
//	                              is a member is reinstated; only if there is none, and none is about to be one, the plan's
//	                              owner begins with fresh counters
//	the standby is gone           it is dropped; never while the owner is gone too
//	the owner has settled, and    it swaps with the standby, if that is the plan's owner and complete
//	is not the plan's             else the plan's owner becomes standby, if it is complete
//	the owner has settled, and    the plan's standby becomes standby, if it is complete
//	is the plan's
//	it, or the node that would    nothing planned
//	take its place, is silent,
//	or one does not reach the other
func Next(v *View, seen Seen, reports Reports, plan Plan) (*View, Urgency) {
	w := newDraft(v, seen, reports)
	w.changeMembers()
	for p := range v.Partitions {
		w.changePartition(p, plan[p])
	}
	if w.urgency == Nothing {
		return nil, Nothing
	}
	w.keepNamed()
	w.next.elect(v, w.left, reports)
	if w.waives {
		w.next.waive(v, reports)
	}
	return w.next, w.urgency
}

// draft is a view that is being written.
type draft struct {
	old, next *View
	seen      Seen
	reports   Reports
	down      []Life // lives of old that cannot have a partition: they are gone, have left or were restarted
	left      []Life // those of them that have left
	changes   bool   // next has partitions of its own
	waives    bool   // members change although half has not adopted the last change
	urgency   Urgency
}

func newDraft(v *View, seen Seen, reports Reports) *draft {
	next := *v
	next.Number++
	next.Members = nil
	seen.Nodes = seen.afterFarewells(v)
	return &draft{old: v, next: &next, seen: seen, reports: reports}
}

// afterFarewells returns the nodes that are seen. Those that have said farewell have left.
func (s *Seen) afterFarewells(v *View) []Member {
	nodes := slices.Clone(s.Nodes)
	for _, l := range s.Farewells {
		i := slices.IndexFunc(nodes, func(n Member) bool { return n.Life == l })
		switch {
		case i >= 0:
			nodes[i].State = Left
		case v.isConcerned(l):
			nodes = append(nodes, Member{Life: l, State: Left})
		}
	}
	return nodes
}

func (w *draft) note(u Urgency) { w.urgency = max(w.urgency, u) }

// isUp reports whether a life is a member of the next view that can have a partition.
func (w *draft) isUp(l Life) bool { return w.next.IsMember(l) && !slices.Contains(w.down, l) }

// changePartition makes at most one change to a partition.
func (w *draft) changePartition(p int, place Place) {
	part := w.old.Partitions[p]
	next, urgency := part, Urgent
	switch owner, standby := w.isUp(part.Owner), w.isUp(part.Standby); {
	case !owner:
		next = w.replaceOwner(p, part, place)
	case part.Standby != Life{} && !standby:
		next.Standby = Life{}
	case w.reports.settled(w.old, p):
		next, urgency = w.approach(p, part, place), Planned
	}
	if next.Owner != part.Owner || next.Standby != part.Standby {
		w.change(p, next)
		w.note(urgency)
	}
}

// change changes a partition. The first one copies them: most drafts change none.
func (w *draft) change(p int, to Partition) {
	if !w.changes {
		w.changes, w.next.Partitions = true, slices.Clone(w.old.Partitions)
	}
	w.next.Partitions[p] = to
}

// replaceOwner returns a partition whose owner is gone with another one, or as it is if there is no member that could be owner.
func (w *draft) replaceOwner(p int, part Partition, place Place) Partition {
	if w.isUp(part.Standby) {
		return w.succeed(p, part, part.Standby, Life{})
	}
	if l := w.old.Learner(p, place); w.isUp(l) && w.reports.complete(w.old, p, l) {
		return w.succeed(p, part, l, Life{})
	}
	for _, l := range part.Predecessors {
		if w.isUp(l) {
			return w.succeed(p, part, l, Life{})
		}
	}
	if !w.seen.Overdue && slices.ContainsFunc(part.Predecessors, w.isBack) {
		return part
	}
	for _, id := range []string{place.Owner, place.Standby} {
		if l, member := w.next.Current(id); member && w.isUp(l) {
			return w.succeed(p, part, l, Life{})
		}
	}
	for i := range w.next.Members { // each partition begins elsewhere
		m := w.next.Members[(p+i)%len(w.next.Members)]
		if m.State == Ready && w.isUp(m.Life) {
			return w.succeed(p, part, m.Life, Life{})
		}
	}
	return part
}

// isBack reports whether a life that is no member is ready, and is to be one as soon as members may change.
func (w *draft) isBack(l Life) bool {
	return slices.ContainsFunc(w.seen.Nodes, func(n Member) bool { return n.Life == l && n.State == Ready })
}

func (w *draft) isSilent(l Life) bool { return slices.Contains(w.seen.Silent, l) }

func (w *draft) areUnconnected(a, b Life) bool {
	return slices.Contains(w.seen.Unconnected, Pair{a, b}) || slices.Contains(w.seen.Unconnected, Pair{b, a})
}

// approach returns a partition one step nearer to the plan. Its owner has settled.
func (w *draft) approach(p int, part Partition, place Place) Partition {
	wanted := place.Owner
	if part.Owner.ID == wanted {
		wanted = place.Standby
	}
	l, member := w.next.Current(wanted)
	switch {
	case !member || !w.isUp(l) || !w.reports.complete(w.old, p, l) || l == part.Owner, w.isSilent(l), w.isSilent(part.Owner), w.areUnconnected(l, part.Owner):
		return part
	case l == part.Standby && wanted == place.Owner:
		return w.succeed(p, part, l, part.Owner)
	}
	part.Standby, part.Predecessors = l, nil
	return part
}

// maxPredecessors bounds Partition.Predecessors. A partition that has as many keeps its owner.
const maxPredecessors = 64

// succeed returns the partition with another owner and standby. All that may have decided since the last owner settled precede it.
func (w *draft) succeed(p int, part Partition, owner, standby Life) Partition {
	var before []Life
	if !w.reports.settled(w.old, p) {
		before = part.Predecessors
	}
	if len(before) >= maxPredecessors {
		return part
	}
	next := Partition{Owner: owner, Term: w.next.Number, Standby: standby}
	for _, l := range before {
		if l != owner {
			next.Predecessors = append(next.Predecessors, l)
		}
	}
	next.Predecessors = append(next.Predecessors, part.Owner)
	return next
}

// keepNamed keeps the addresses of lives that a partition names and that are no members any more: predecessors, and an owner and a
// standby that cannot be replaced yet.
func (w *draft) keepNamed() {
	named := make(map[Life]bool)
	for p := range w.next.Partitions {
		part := &w.next.Partitions[p]
		named[part.Owner], named[part.Standby] = true, true
		for _, l := range part.Predecessors {
			named[l] = true
		}
	}
	var gone []Member
	for _, m := range w.old.Members {
		if named[m.Life] && !w.next.IsMember(m.Life) {
			m.State = Gone
			gone = append(gone, m)
		}
	}
	w.next.Members = append(w.next.Members, gone...)
	sortMembers(w.next.Members)
}
