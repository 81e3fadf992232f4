package rules

import (
	"cmp"
	"slices"
)

// Values of Match.Limit that are no index.
const (
	unlimited = -1
	replaced  = -2 // while Match runs
)

// settle applies what the matches from start on say of each other: it drops what
// is replaced or exempted, and raises what is elastic. They are in file order,
// and stay so.
func settle(buf []Match, start int) []Match {
	ms := buf[start:]
	for i := range ms {
		if i > 0 && ms[i].Rule == ms[i-1].Rule {
			continue
		}
		for _, r := range ms[i].Rule.replaces {
			for m := of(ms, r); len(m) > 0 && m[0].Rule == r; m = m[1:] {
				m[0].Limit = replaced
			}
		}
	}
	exempts := func(m Match) bool { return m.Limit == unlimited && len(m.Rule.Replaces) == 0 }
	exempt := slices.ContainsFunc(ms, exempts)
	var free *Rule // the first unlimited rule
	kept := buf[:start]
	for _, m := range ms {
		switch {
		case m.Limit == unlimited:
			free = cmp.Or(free, m.Rule)
		case m.Limit == replaced, exempt && !m.Rule.blocks:
		default:
			kept = append(kept, m)
		}
	}
	if len(kept) == start && free != nil {
		return append(kept, Match{Rule: free, Limit: unlimited})
	}
	for i := range kept[start:] {
		m := &kept[start+i]
		if parent := m.Rule.parent; parent != nil && enforces(kept[start:], parent) {
			m.Above = m.Rule.raised[m.Limit].above
		}
	}
	return kept
}

// enforces reports whether r matches, and all of its limits must have room.
func enforces(ms []Match, r *Rule) bool {
	matches := of(ms, r)
	for _, m := range matches {
		switch {
		case m.Rule != r:
			return true
		case m.Shadow:
			return false
		}
	}
	return len(matches) > 0
}

// of returns the matches from the first one of r on, none if there is none of r.
func of(ms []Match, r *Rule) []Match {
	i, found := slices.BinarySearchFunc(ms, r, func(m Match, r *Rule) int { return cmp.Compare(orderOf(m.rank), r.order) })
	if !found {
		return nil
	}
	return ms[i:]
}
