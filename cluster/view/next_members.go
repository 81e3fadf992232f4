package view

import "slices"

// changeMembers fills in the members of the next view that are not Gone.
//
//	a member is gone         it is no member any more; at most a third of the members in one view
//	a member has left        the same, at any number
//	a member is to leave     it is Leaving, if another one is Ready; and Ready again if it is not to leave any more
//	a later life is ready    it takes the member's place at once: the ids of the members stay
//	another node is ready    it joins, if there is room
//
// Ids of members come and go only if half of the members from before the last change have adopted that change, or that was waited for
// in vain. Until then a member that is gone stays one, and has no partitions.
func (w *draft) changeMembers() {
	allowed := w.mayChange()
	mayDrop := max(1, len(w.old.Lives())/3)
	for _, m := range w.old.Members {
		if m.State == Gone {
			continue
		}
		n := w.newest(m)
		drops := false
		switch {
		case n.Incarnation > m.Incarnation:
			w.down = append(w.down, m.Life)
			w.note(Urgent)
			m = n
		case n.State == Left:
			w.down, w.left = append(w.down, m.Life), append(w.left, m.Life)
			if drops = true; !slices.Contains(w.old.Ended, m.Life) {
				w.note(Urgent)
			}
		case n.State == Gone && mayDrop > 0:
			mayDrop--
			w.down = append(w.down, m.Life)
			drops = true
		case n.State != Gone && n.State != m.State:
			m.State = n.State
			w.note(Urgent)
		}
		if drops && allowed {
			w.note(Urgent)
			continue
		}
		w.next.Members = append(w.next.Members, m)
	}
	w.keepOne()
	w.endFormer()
	if allowed {
		w.join()
	}
	sortMembers(w.next.Members)
}

// endFormer has lives count for ended that are no members any more, that the view waits for or has given up, and that have left.
func (w *draft) endFormer() {
	for _, n := range w.seen.Nodes {
		isNamed := slices.Contains(w.old.Before, n.Life) || slices.Contains(w.old.GivenUp, n.Life)
		if n.State == Left && isNamed && !w.old.IsMember(n.Life) && !slices.Contains(w.old.Ended, n.Life) {
			w.left = append(w.left, n.Life)
			w.note(Urgent)
		}
	}
}

// mayChange reports whether ids of members may come and go, and notes if that is only because it was waited for long enough.
func (w *draft) mayChange() bool {
	confirmed := w.old.Confirmed(w.reports)
	if w.waives = w.seen.Overdue && !confirmed; w.waives {
		w.note(Urgent)
	}
	return confirmed || w.waives
}

// newest returns what is seen of a member: m itself if nothing is, and a later life only if that is Ready.
func (w *draft) newest(m Member) Member {
	if later, found := w.later(m.Life); found {
		return later
	}
	for _, n := range w.seen.Nodes {
		if n.Life == m.Life {
			return n
		}
	}
	return m
}

func (w *draft) later(l Life) (latest Member, found bool) {
	for _, n := range w.seen.Nodes {
		if n.ID == l.ID && n.Incarnation > l.Incarnation && n.State == Ready && (!found || n.Incarnation > latest.Incarnation) {
			latest, found = n, true
		}
	}
	return latest, found
}

// keepOne undoes the changes of members if no member would be Ready: all leave at once, or etcd has lost all keys.
func (w *draft) keepOne() {
	if len(w.next.staying()) > 0 {
		return
	}
	w.next.Members = slices.DeleteFunc(slices.Clone(w.old.Members), func(m Member) bool { return m.State == Gone })
	w.down, w.left = nil, nil
	if w.urgency = Nothing; w.waives {
		w.note(Urgent)
	}
}

// join adds the nodes that are Ready and no members, the latest life of each, the first by id.
func (w *draft) join() {
	var joining []Member
	for _, n := range w.seen.Nodes {
		_, member := w.next.Current(n.ID)
		_, isFormer := w.later(n.Life)
		if n.State != Ready || member || isFormer {
			continue
		}
		joining = append(joining, n)
	}
	sortMembers(joining)
	for _, n := range joining {
		if w.seen.Most > 0 && len(w.next.staying()) >= w.seen.Most {
			return
		}
		w.next.Members = append(w.next.Members, n)
		w.note(Planned)
	}
}
