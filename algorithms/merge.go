package algorithms

// Two counts of one counter are disjoint if no token is in both, such as the takes allowed by an owner and
// those meanwhile by a standby. They are added once, and what is above the limit then stays.
//
// Windows add exactly: their hits lie in the same windows as if one counter had taken
// them. Meters add their levels at the later of the two instants that they remember, the
// one of the last step or, of a meter that was only charged, the one of the first token since it
// was empty. So they add exactly if one was not in use any more when the other began, and if
// the second was only charged, and was not empty in between or is of ChargeInUse. Where both were in
// use, both have drained, and one meter that had taken all would hold more: what drains in that
// time, and no more.
//
// What a State has room for bounds the sum: 1<<32 - 1 tokens per window, and in a meter
// as many as its invariant has room for. No limit is above it, so what is at the bound
// is denied all the same.

// Merge adds two disjoint counts of one counter at the instant now, or at the latest that a or b remembers,
// regardless of room. Two merge to the same in either order, and more than two windows in any. Merge more than
// two meters in the order in which they were in use: in any other, more has drained twice.
//
// l must be valid, and a and b have been written under its algorithm and window.
func Merge(l *Limit, a, b State, now int64) State {
	return counterOf(l).merge(*l, a, b, now)
}

// Charge counts tokens that were taken at an instant takenAt, as far as they still weigh on s at now,
// regardless of room. It does what Merge does with a counter of these tokens alone, and Return at the instant
// takenAt undoes it. If takenAt is after now, that is now.
//
// tokens must be between 0 and MaxCost, and takenAt not negative.
func Charge(l *Limit, s State, now, takenAt, tokens int64) State {
	return counterOf(l).charge(*l, s, max(now, takenAt), takenAt, tokens)
}

// ChargeInUse is Charge of a part of a counter whose other parts have tokens at takenAt, and had some at all times since the first token of s. What
// has drained since then was of all parts. So a meter forgets no token of s that has drained by itself: in the sum, all of them drain once.
func ChargeInUse(l *Limit, s State, now, takenAt, tokens int64) State {
	if l.Algorithm.Drains() {
		return chargeMeter(*l, s, takenAt, tokens, true)
	}
	return Charge(l, s, now, takenAt, tokens)
}
