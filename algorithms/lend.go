package algorithms

// Tokens on lease are counted when they are lent, and used later without another check. That is harmless as
// long as a counter whose tokens count when they are used would never hold more than this one does: then
// all that this one allows has room in that one, too.
//
// A window counts a token the same wherever within it it is used. A bucket drains all
// the time, and what is lent must not drain before it is used: Hold keeps that much in
// the bucket. Then the bucket is always what would be in it without the lease, with the
// lease on top, and what comes back unused is taken off the top, exactly. The log counts
// from the instant of use, and the queue books a turn: neither can lend.

// LentUntil returns the instant before which tokens may be used that are taken at an
// instant not before d.At, and before the one returned. d is the decision of a step of
// the same counter that has taken something. It is at most d.At if nothing may be lent.
// Of a bucket it is when what was in it before would have drained: as long as nothing is
// given back, Hold has nothing to do before then.
func LentUntil(l *Limit, d *Decision) int64 {
	if r := &registered[l.Algorithm]; r.long != nil {
		return r.long.lentUntil(*l, d.At, d.ResetAt)
	}
	return counterOf(l).lentUntil(*l, d.At, d.ResetAt)
}

// Hold returns s as of now if as many tokens have stayed in it as are lent. The
// algorithm must be one that Drains, and tokens not negative.
func Hold(l *Limit, s State, now, tokens int64) State {
	m := meterAt(l, s, now)
	if lent := l.units(tokens); m.minus(lent).zero() {
		m.amount = lent
	}
	return m.state(l)
}

// Outlast fills s, as of now, so that at least the given number of tokens is still in it at the
// instant until, and returns it without Hold. A state has no room for more than MaxLimit tokens: then it is
// full. The algorithm must be one that Drains, and tokens not negative.
func Outlast(l *Limit, s State, now, tokens, until int64) State {
	m := meterAt(l, s, now)
	m.add(l, product(max(0, until-m.at), l.Limit).plus(l.units(tokens)).minus(m.amount))
	return m.state(l)
}
