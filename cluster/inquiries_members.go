package cluster

import (
	"cmp"
	"slices"
	"time"
)

// stateOf is the state that a member has named in a heartbeat. One of an older version names none, and is Ready as far as
// its registration says nothing else.
func stateOf(named string) State {
	if s := State(named); s == Joining || s == Leaving {
		return s
	}
	return Ready
}

// LoadOf returns what a member has reported last, the zero Load if that is nothing.
func (q *inquiries) LoadOf(id string) Load {
	if id == q.self {
		return q.load()
	}
	if c := q.member(id); c != nil {
		said, heard := c.last()
		return loadOf(said.GetLoad(), heard)
	}
	return Load{}
}

// HandoverStatusOf returns how far handover is on a member, as it has said last.
func (q *inquiries) HandoverStatusOf(id string) HandoverStatus {
	if id == q.self {
		return q.status()
	}
	c := q.member(id)
	if c == nil {
		return HandoverStatus{}
	}
	said, _ := c.last()
	if said == nil {
		return HandoverStatus{}
	}
	return HandoverStatus{Active: int(said.GetActive()), Wanted: int(said.GetWanted()), Leaving: int(said.GetLeaving()), State: stateOf(said.GetState())}
}

// Clocks returns the differences to all members whose clocks were compared with this node's lately, sorted by id.
func (q *inquiries) Clocks() (all []ClockDifference) {
	for _, c := range q.members() {
		c.mu.Lock()
		if !c.compared.IsZero() && time.Since(c.compared) < clockKnown {
			all = append(all, ClockDifference{c.member.ID, c.ahead})
		}
		c.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b ClockDifference) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Reaching returns the ids of the members that have said lately that they reach the one of that id, sorted.
func (q *inquiries) Reaching(id string) []string { return reachingAmong(q.members(), id, time.Time{}) }

// reachingAmong returns the ids of those members that have said since an instant, and lately, that they reach the one of that id. They are sorted, so that a
// node that asks one after the other asks all.
func reachingAmong(members []*otherMember, id string, since time.Time) (ids []string) {
	for _, c := range members {
		if c.reachesLately(id, since) {
			ids = append(ids, c.member.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// ReachedBy returns the ids of the members that reach a member, sorted; of this node, its own.
func (q *inquiries) ReachedBy(id string) []string {
	if id == q.self {
		return []string{id}
	}
	by := q.Reaching(id)
	if q.router.Reaches(id) {
		by = append(by, q.self)
		slices.Sort(by)
	}
	return by
}
