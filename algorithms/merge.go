package algorithms

import (
	"math"
)

// Two counts of one counter are disjoint if no token is in both, such as what an owner
// has let pass and what a standby has meanwhile. They are added once, and what is above
// the limit then stays.
//
// Windows add exactly: their hits lie in the same windows as if one counter had taken
// them. Meters add what has not drained yet from each. As both have drained while
// there were two of them, one meter that had taken all would hold more: what drains in
// the time in which both were in use.
//
// What a State has room for bounds the sum: 1<<32 - 1 tokens per window, and in a meter
// as many as its invariant has room for. No limit is above it, so what is at the bound
// is denied all the same.

// Merge adds two disjoint counts of one counter at the instant now, or at the latest that
// a or b remembers, whatever the room. Two merge to the same in either order, and more
// than two in any, if no meter among them remembers an instant after now.
//
// l must be valid, and a and b have been written under its algorithm and window.
func Merge(l *Limit, a, b State, now int64) State {
	switch l.Algorithm {
	case SlidingWindow:
		return slidingWindowMerge(l, a, b, now)
	case FixedWindow:
		return fixedWindowMerge(l, a, b, now)
	case TokenBucket, GCRA, LeakyBucket:
		return meterMerge(l, a, b, now)
	default:
		panic("algorithms: merge under an invalid limit, or a long one")
	}
}

// Charge counts tokens that were taken at an instant takenAt, as far as they still
// weigh on s at now, whatever the room. It does what Merge does with a counter of these
// tokens alone, and Return undoes it. If takenAt is after now, that is now.
//
// tokens must be between 0 and MaxCost, and takenAt not negative.
func Charge(l *Limit, s State, now, takenAt, tokens int64) State {
	now = max(now, takenAt)
	switch l.Algorithm {
	case SlidingWindow:
		return slidingWindowCharge(l, s, now, takenAt, tokens)
	case FixedWindow:
		return fixedWindowCharge(l, s, now, takenAt, tokens)
	case TokenBucket, GCRA, LeakyBucket:
		return meterCharge(l, s, now, takenAt, tokens)
	default:
		panic("algorithms: charge under an invalid limit, or a long one")
	}
}

func slidingWindowMerge(l *Limit, a, b State, now int64) State {
	var x, y window
	x.load(l, a, now)
	y.load(l, b, x.now)
	x = window{}
	x.load(l, a, y.now)
	x.add(y.prev, y.cur)
	return x.state()
}

func slidingWindowCharge(l *Limit, s State, now, takenAt, tokens int64) State {
	var w window
	w.load(l, s, now)
	switch takenAt / l.Window {
	case w.index:
		w.add(0, tokens)
	case w.index - 1:
		w.add(tokens, 0)
	}
	return w.state()
}

// add counts hits of the previous and the current window.
func (w *window) add(prev, cur int64) {
	w.prev = min(w.prev+prev, math.MaxUint32)
	w.cur = min(w.cur+cur, math.MaxUint32)
}

// fixedWindowMerge keeps the window that ends later: they differ only if the nodes do
// not agree on the calendar of a time zone.
func fixedWindowMerge(l *Limit, a, b State, now int64) State {
	x := fixedAt(l, a, now)
	y := fixedAt(l, b, x.at)
	x = fixedAt(l, a, y.at)
	if x.end < y.end {
		x, y = y, x
	}
	x.add(int64(y.B & usedMask))
	return x.State
}

func fixedWindowCharge(l *Limit, s State, now, takenAt, tokens int64) State {
	f := fixedAt(l, s, now)
	if f.start(l) <= takenAt {
		f.add(tokens)
	}
	return f.State
}

// add counts hits of the window.
func (f *fixed) add(tokens int64) { f.use(min(tokens, usedMask-int64(f.B&usedMask))) }

func meterMerge(l *Limit, a, b State, now int64) State {
	x := meterAt(l, a, now)
	y := meterAt(l, b, x.at)
	x = meterAt(l, a, y.at)
	x.add(l, y.amount)
	return x.state(l)
}

// meterCharge takes what meterReturn gives back.
func meterCharge(l *Limit, s State, now, takenAt, tokens int64) State {
	m := meterAt(l, s, now)
	m.add(l, l.units(tokens).minus(product(m.at-takenAt, l.Limit)))
	return m.state(l)
}

// add fills m as far as its invariant allows once it is traced back to the beginning
// of its grain.
func (m *meter) add(l *Limit, more amount) {
	m.amount = m.plus(more)
	size := int64(1) << grain(l.Window)
	most := product(MaxLimit, l.Window+size).minus(product(m.at%size, l.Limit))
	if m.hi > most.hi || m.hi == most.hi && m.lo > most.lo {
		m.amount = most
	}
}
