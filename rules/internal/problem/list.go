package problem

import (
	"cmp"
	"slices"
)

// List collects the first Max by position, however many there are. The zero value is empty.
type List struct {
	list  []Problem // len(list) < 2*Max
	total int
}

// Add takes in one.
func (ps *List) Add(p Problem) {
	ps.total++
	ps.list = append(ps.list, p)
	if len(ps.list) == 2*Max {
		ps.cut()
	}
}

func (ps *List) cut() {
	slices.SortStableFunc(ps.list, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	ps.list = ps.list[:min(len(ps.list), Max)]
}

// Total is how many were added.
func (ps *List) Total() int { return ps.total }

// Sorted returns the first ones by position.
func (ps *List) Sorted() []Problem {
	ps.cut()
	return ps.list
}

// Err returns a *LoadError, nil if there are none.
func (ps *List) Err() error {
	if ps.total == 0 {
		return nil
	}
	return &LoadError{Problems: ps.Sorted(), More: ps.total - min(ps.total, Max)}
}
