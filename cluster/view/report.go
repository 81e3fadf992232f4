package view

import "slices"

// Report is what one life of a node has said of itself, the newest of it that is known. Heartbeats carry the reports of all
// members, so that the writer of views need not reach each.
type Report struct {
	Life
	// Adopted is the number of the newest view that it has adopted, 0 for none.
	Adopted uint64
	// Settled is by partition the term in which it decides as owner, 0 for none. Missing entries are 0.
	Settled []uint64
	// Complete is by partition the number of the view in which the owner has fed it everything, 0 for never. It counts only in that
	// view: the node keeps the copy until it has adopted a later one. Missing entries are 0.
	Complete []uint64
}

// Reports are sorted by id and incarnation, with at most one for a life.
type Reports []Report

func (r Reports) of(l Life) *Report {
	i, found := slices.BinarySearchFunc(r, l, func(a Report, l Life) int { return compareLives(a.Life, l) })
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

// settled reports whether the owner of a partition has settled in that term.
func (r Reports) settled(l Life, p int, term uint64) bool {
	a := r.of(l)
	return a != nil && p < len(a.Settled) && a.Settled[p] == term
}

// complete reports whether a life has a complete copy of a partition in the view of that number.
func (r Reports) complete(l Life, p int, number uint64) bool {
	a := r.of(l)
	return a != nil && p < len(a.Complete) && a.Complete[p] == number
}
