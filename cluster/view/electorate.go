package view

import "slices"

// Electorate says how far the members of a cluster may change. A member decides as long as a majority of the members of its view
// answer it and know no newer view. So members change again only once half of the members from before the last change have
// adopted that change: else a minority shrinks its majority one removal at a time (ADR 23).
type Electorate struct {
	// Changed is the number of the view with which the ids of the members last changed. 1 <= Changed <= Number.
	Changed uint64
	// Before are the members of the view before that one, none in the first view.
	Before []Life
	// Ended are those of the members and of Before that have ended for good: they have left, or an operator has said so.
	Ended []Life
	// Waived is the number of a view up to which all count as adopted, although they may not be: that was waited for in vain. Waived <= Number.
	Waived uint64
	// GivenUp are the lives that were missing then, the last maxGivenUp of them.
	GivenUp []Life
}

// maxGivenUp bounds Electorate.GivenUp.
const maxGivenUp = 64

// isPast reports whether a life is known not to confirm decision leases of views before number.
func (v *View) isPast(l Life, number uint64, reports Reports) bool {
	if slices.Contains(v.Ended, l) {
		return true
	}
	if c, member := v.Current(l.ID); member && c.Incarnation > l.Incarnation {
		return true
	}
	return reports.adopted(l) >= number
}

// half reports whether at least half of some lives, rounded up, no longer confirm decision leases of views before number.
func (v *View) half(lives []Life, number uint64, reports Reports) bool {
	past := 0
	for _, l := range lives {
		if v.isPast(l, number, reports) {
			past++
		}
	}
	return past >= (len(lives)+1)/2
}

// Confirmed reports whether half of the members from before the last change of members have adopted that change, so that the
// members may change again.
func (v *View) Confirmed(reports Reports) bool {
	return v.Changed <= v.Waived || v.half(v.Before, v.Changed, reports)
}

// HaveLeft reports whether no majority still confirms the decision lease of an owner that a view of that number, at most v's,
// has replaced. It was a member of the view before.
func (v *View) HaveLeft(number uint64, reports Reports) bool {
	return number <= v.Waived || v.Confirmed(reports) && (number <= v.Changed || v.half(v.Lives(), number, reports))
}

// Missing returns the lives that are not known to have adopted the last change of members.
func (v *View) Missing(reports Reports) (lives []Life) {
	for _, l := range v.Before {
		if !v.isPast(l, v.Changed, reports) {
			lives = append(lives, l)
		}
	}
	return lives
}

// elect fills in the electorate of a view that follows old and has its members. left are lives that have ended by their own word.
func (v *View) elect(old *View, left []Life, reports Reports) {
	if !sameIDs(old.Lives(), v.Lives()) {
		v.Changed, v.Before = v.Number, old.Lives()
	}
	for _, l := range left {
		if !slices.Contains(v.Ended, l) {
			v.Ended = append(slices.Clip(v.Ended), l)
		}
	}
	v.GivenUp = slices.DeleteFunc(slices.Clone(v.GivenUp), func(l Life) bool { return v.isPast(l, v.Waived, reports) })
	v.Ended = slices.DeleteFunc(slices.Clone(v.Ended), func(l Life) bool {
		return !slices.Contains(v.Before, l) && !v.IsMember(l) || v.IsMember(l) && !old.IsMember(l)
	})
}

// waive has v go on without the members that old waits for.
func (v *View) waive(old *View, reports Reports) {
	v.Waived = old.Number
	for _, l := range old.Missing(reports) {
		if !slices.Contains(v.GivenUp, l) {
			v.GivenUp = append(v.GivenUp, l)
		}
	}
	v.GivenUp = v.GivenUp[max(0, len(v.GivenUp)-maxGivenUp):]
}

func sameIDs(a, b []Life) bool {
	return slices.EqualFunc(a, b, func(x, y Life) bool { return x.ID == y.ID })
}
