package view

import (
	"cmp"
	"slices"
	"sort"
)

// Set is a set of partitions: the numbers from which on the partitions are in it, out of it, in it again, and so on. They rise. So
// Set{0} has all partitions, and Set{3, 5} has 3 and 4.
type Set []uint32

// Has reports whether a partition is in the set.
func (s Set) Has(p int) bool {
	return sort.Search(len(s), func(i int) bool { return int(s[i]) > p })%2 == 1
}

// setOf returns a set of the first partitions that has those for which ask returns in. Those that do not matter are in it if the one
// before is, which keeps it short.
func setOf(partitions int, ask func(p int) (matters, in bool)) (s Set) {
	first := true
	for p := range partitions {
		matters, in := ask(p)
		if !matters {
			continue
		}
		if in != (len(s)%2 == 1) {
			from := p
			if first {
				from = 0
			}
			s = append(s, uint32(from))
		}
		first = false
	}
	return s
}

// Report is what one life of a node has said of itself, the newest of it that is known. Heartbeats carry the reports of all
// members, so that the writer of views need not reach each.
//
// Both sets are relative to the view Adopted. That is all that Next needs, since terms only rise with views. Let N be the newest view, t
// the term of a partition in it, and a = Adopted <= N. If t <= a, the term is t in all views from t to N, hence in a: the node
// has settled in term t if, and only if, the partition is in Settled. If t > a, the term in view a is at most a, an earlier one: the node
// has not settled in term t, or has not reported it yet. A copy counts only in view N: the node keeps it until it has adopted a later one.
type Report struct {
	Life
	// Adopted is the number of the newest view that it has adopted, 0 for none.
	Adopted uint64
	// Revision orders the reports of a life with the same Adopted, from 0: the highest is the newest.
	Revision uint64
	// Settled has the partitions that it decides as owner, in the term of view Adopted. Those of other owners are in it or not.
	Settled Set
	// Complete has the partitions of which it has everything that the owner has fed it, in view Adopted. Those of which it is neither
	// standby nor Learner there are in it or not.
	Complete Set
}

// compareAge returns a positive number if r is newer than other, a report of the same life.
func (r *Report) compareAge(other *Report) int {
	return cmp.Or(cmp.Compare(r.Adopted, other.Adopted), cmp.Compare(r.Revision, other.Revision))
}

// Following returns the report that follows r, and whether it says anything else. v is the view that the life has adopted for all
// partitions, and plan is that of v. decides and isComplete say whether it decides as owner, and whether its copy is complete, by that view.
func (r Report) Following(v *View, plan Plan, decides, isComplete func(p int) bool) (next Report, news bool) {
	next = Report{Life: r.Life, Adopted: v.Number}
	next.Settled = setOf(len(v.Partitions), func(p int) (matters, in bool) {
		matters = v.Partitions[p].Owner == r.Life
		return matters, matters && decides(p)
	})
	next.Complete = setOf(len(v.Partitions), func(p int) (matters, in bool) {
		matters = v.Partitions[p].Standby == r.Life || plan[p].names(r.ID) && v.Learner(p, plan[p]) == r.Life
		return matters, matters && isComplete(p)
	})
	if r.Adopted != next.Adopted {
		return next, true
	}
	if slices.Equal(r.Settled, next.Settled) && slices.Equal(r.Complete, next.Complete) {
		return r, false
	}
	next.Revision = r.Revision + 1
	return next, true
}

// Reports are sorted by id and incarnation, with at most one for a life.
type Reports []Report

func (r Reports) find(l Life) (int, bool) {
	return findLife(r, func(a *Report) *Life { return &a.Life }, l)
}

func (r Reports) of(l Life) *Report {
	i, found := r.find(l)
	if !found {
		return nil
	}
	return &r[i]
}

// adopted returns the newest view that a life is known to have adopted, 0 if it is not known.
func (r Reports) adopted(l Life) uint64 {
	if a := r.of(l); a != nil {
		return a.Adopted
	}
	return 0
}

// settled reports whether the owner of a partition in a view has settled.
func (r Reports) settled(v *View, p int) bool {
	part := &v.Partitions[p]
	a := r.of(part.Owner)
	return a != nil && part.Term <= a.Adopted && a.Adopted <= v.Number && a.Settled.Has(p)
}

// complete reports whether a life, the standby or the Learner of a partition in a view, has a complete copy in that view.
func (r Reports) complete(v *View, p int, l Life) bool {
	a := r.of(l)
	return a != nil && a.Adopted == v.Number && a.Complete.Has(p)
}

// NewestReports are the newest reports of all lives that a view names, as a node keeps them, and which of these have said farewell. It is not safe for
// concurrent use. The zero value has no view, and keeps none.
type NewestReports struct {
	view      *View
	reports   Reports // at most one for each life that view names
	farewells []Life  // lives that view names, each once
}

// Keep takes over the lives of a newer view. The reports and farewells of others are forgotten.
func (n *NewestReports) Keep(v *View) {
	n.view = v
	n.reports = slices.DeleteFunc(n.reports, func(r Report) bool { return !v.isConcerned(r.Life) })
	n.farewells = slices.DeleteFunc(n.farewells, func(l Life) bool { return !v.isConcerned(l) })
}

// NoteFarewell records that a life has said farewell, and reports whether it was news. A life that the view does not name is ignored.
func (n *NewestReports) NoteFarewell(l Life) (news bool) {
	if !n.Concerns(l) || slices.Contains(n.farewells, l) {
		return false
	}
	n.farewells = append(n.farewells, l)
	return true
}

// Concerns reports whether the view names a life, as a member or one from before.
func (n *NewestReports) Concerns(l Life) bool { return n.view != nil && n.view.isConcerned(l) }

// Farewells returns the lives that have said farewell, which the caller may keep.
func (n *NewestReports) Farewells() []Life { return slices.Clone(n.farewells) }

// Note records a report, and reports whether it was news. A report of a life that the view does not name is ignored.
func (n *NewestReports) Note(r Report) (news bool) {
	if n.view == nil || r.Adopted == 0 || !n.view.isConcerned(r.Life) {
		return false
	}
	i, found := n.reports.find(r.Life)
	if !found {
		n.reports = slices.Insert(n.reports, i, r)
		return true
	}
	if r.compareAge(&n.reports[i]) <= 0 {
		return false
	}
	n.reports[i] = r
	return true
}

// All returns the reports, which the caller may keep.
func (n *NewestReports) All() Reports { return slices.Clone(n.reports) }

// isConcerned reports whether what a life reports may matter to a view.
func (v *View) isConcerned(l Life) bool {
	_, found := v.index(l)
	return found || slices.Contains(v.Before, l) || slices.Contains(v.GivenUp, l)
}
