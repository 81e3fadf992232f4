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

// applyPrecedence applies what the matches from start on say of each other: it drops what
// is replaced or exempted, and raises what is elastic. They are in file order,
// and stay so.
func applyPrecedence(buf []Match, start int) []Match {
	ms := buf[start:]
	for i := range ms {
		if rules := ms[i].kind.replaces; len(rules) > 0 && (i == 0 || ms[i-1].Rule != ms[i].Rule) {
			drop(ms, rules)
		}
	}
	exempt, elastic := false, false
	for i := range ms {
		k := ms[i].kind
		exempt = exempt || ms[i].Limit == unlimited && len(k.replaces) == 0
		elastic = elastic || k.parent != nil
	}
	var free *Match // the first unlimited one
	kept := buf[:start]
	for i := range ms {
		switch m := &ms[i]; {
		case m.Limit == unlimited:
			free = cmp.Or(free, m)
		case m.Limit == replaced, exempt && !m.kind.blocks:
		default:
			kept = append(kept, *m)
		}
	}
	if len(kept) == start && free != nil {
		return append(kept, *free)
	}
	if elastic {
		raiseElastic(kept[start:])
	}
	return kept
}

// drop marks what matches of these rules.
func drop(ms []Match, rules []*Rule) {
	for _, r := range rules {
		for m := of(ms, r); len(m) > 0 && m[0].Rule == r; m = m[1:] {
			m[0].Limit = replaced
		}
	}
}

// of returns the matches from the first one of r on, none if there is none of r.
func of(ms []Match, r *Rule) []Match {
	i, found := slices.BinarySearchFunc(ms, r, func(m Match, r *Rule) int { return cmp.Compare(orderOf(m.rank), r.order) })
	if !found {
		return nil
	}
	return ms[i:]
}
