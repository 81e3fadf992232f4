package rules

// raiseElastic raises what has a parent among the matches.
func raiseElastic(ms []Match) {
	for i := range ms {
		m := &ms[i]
		if k := m.kind; k.parent != nil && requiresRoom(ms, k.parent) {
			m.Above = k.above[m.Limit]
		}
	}
}

// requiresRoom reports whether r matches, and all of its limits must have room.
func requiresRoom(ms []Match, r *Rule) bool {
	matches := of(ms, r)
	for i := range matches {
		switch m := &matches[i]; {
		case m.Rule != r:
			return true
		case m.Shadow:
			return false
		}
	}
	return len(matches) > 0
}
