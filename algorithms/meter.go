package algorithms

import (
	"math"
	"math/bits"
)

// The meter is what token_bucket, gcra and leaky_bucket have in common, exactly.
// It is a leaky bucket that fills by a request's cost and drains all the time,
// Limit tokens per Window, never below empty; a request is allowed if it fits:
//
//	level(t) = max(0, level(s) - (t - s) * limit / window)
//	allowed  = level + cost <= capacity
//
// Seen as a token bucket, capacity - level is what is in the bucket: it starts
// full and refills continuously. Known since J. Turner, "New directions in
// communications" (1986); the books draw it as tokens that drop in: A. Xu,
// "System Design Interview" (2020), ch. 4.
//
// Seen as the generic cell rate algorithm, the instant at which the level would
// be 0 is the theoretical arrival time, window / limit is the increment T, and
// (capacity - 1) * T is the tolerance tau. ITU-T I.371 and the ATM Forum's
// "Traffic Management 4.0" (1996) define it once as "virtual scheduling" and
// once as "continuous-state leaky bucket", and show that they decide alike. So
// they are one code here, and twins of both kinds check it. What leaky_bucket
// makes of it is in queue.go.
//
// Rates do not divide evenly, so the level is kept in units of 1/window tokens:
// it drains by exactly limit units per nanosecond, and a token is window units.
// Nothing is rounded before an instant is reported. The window belongs to the
// counter for good, so a limit or burst that changes leaves the level as it is.
//
// The state is one number of 128 bits, A above B: an instant of 63 - g bits, in
// grains of 2^g ns, over a level of 65 + g bits, where g = bits of window - 33,
// or 0. The grain is 1 ns for windows below 8.6 s, 4.2 ms for the longest, and
// always at most window / 2^32. The level is the one that the last step left,
// traced back to the beginning of its grain; there the invariant is
//
//	level <= MaxLimit * window + MaxLimit * 2^g < 2^(65+g)
//
// While the limit stays the trace is exact, whatever the grain. Two things see
// it: a limit that changes acts from the beginning of the last step's grain on,
// which moves the level by half a token at most; and a now that went backwards
// past that beginning is taken for it.
type meter struct {
	at     int64  // nanoseconds
	hi, lo uint64 // level at the instant at, in 1/window tokens
}

// grain returns the bits of an instant that a state does not keep.
func grain(window int64) int { return max(0, bits.Len64(uint64(window))-33) }

// meterAt drains s until now.
func meterAt(l *Limit, s State, now int64) meter {
	mask := uint64(2)<<grain(l.Window) - 1 // of A's bits that belong to the level
	since := int64((s.A &^ mask) >> 1)
	m := meter{at: max(now, since), hi: s.A & mask, lo: s.B}
	m.drain(bits.Mul64(uint64(m.at-since), uint64(l.Limit)))
	return m
}

// Drains reports whether a counter of this algorithm drains all the time, so that a
// Return later than its step may give back less than was taken.
func (a Algorithm) Drains() bool { return a == TokenBucket || a == GCRA || a == LeakyBucket }

func (m *meter) state(l *Limit) State {
	rest := uint64(m.at) & (1<<grain(l.Window) - 1)
	s := State{A: (uint64(m.at) - rest) << 1}
	if m.hi|m.lo != 0 {
		var carry uint64
		s.B, carry = bits.Add64(m.lo, rest*uint64(l.Limit), 0) // rest < 2^22
		s.A |= m.hi + carry
	}
	return s
}

// drain lowers the level, to 0 at the least.
func (m *meter) drain(hi, lo uint64) {
	lo, borrow := bits.Sub64(m.lo, lo, 0)
	hi, borrow = bits.Sub64(m.hi, hi, borrow)
	if borrow != 0 {
		hi, lo = 0, 0
	}
	m.hi, m.lo = hi, lo
}

func (m *meter) fill(hi, lo uint64) {
	var carry uint64
	m.lo, carry = bits.Add64(m.lo, lo, 0)
	m.hi += hi + carry
}

// units returns tokens as a level.
func (l *Limit) units(tokens int64) (hi, lo uint64) {
	return bits.Mul64(uint64(tokens), uint64(l.Window))
}

// divideUp returns ceil((hi, lo) / by), or MaxInt64 if that is less.
func divideUp(hi, lo, by uint64) int64 {
	lo, carry := bits.Add64(lo, by-1, 0)
	if hi += carry; hi >= by {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, by)
	return int64(min(q, math.MaxInt64))
}

// emptyAt returns when the level will be 0.
func (m *meter) emptyAt(l *Limit) int64 {
	switch {
	case m.hi|m.lo == 0:
		return m.at
	case l.Limit == 0: // It never drains. Do not remember it for ever.
		return addInstant(m.at, l.Window)
	default:
		return addInstant(m.at, m.until(l, 0, 0))
	}
}

func meterStep(l *Limit, s State, now, cost int64, d *Decision) State {
	m := meterAt(l, s, now)
	capacity := l.Capacity()
	used := divideUp(m.hi, m.lo, uint64(l.Window))
	d.At, d.RetryAt = m.at, m.at
	d.Allowed = cost <= 0 || cost <= capacity-used
	if cost > 0 && cost <= capacity && l.queues() {
		m.queue(l, cost, d)
	} else if !d.Allowed {
		d.RetryAt = m.retryAt(l, capacity-cost)
	}
	switch {
	case !d.Allowed:
	case cost >= 0:
		m.fill(l.units(cost))
		used += cost
	default:
		m.drain(l.units(-cost))
		used += cost
	}
	if d.Remaining = max(0, capacity-max(0, used)); l.queues() && m.closed(l) {
		d.Remaining = 0
	}
	d.ResetAt = m.emptyAt(l)
	return m.state(l)
}

// retryAt returns when the level will have sunk to most, in tokens.
func (m *meter) retryAt(l *Limit, most int64) int64 {
	if most < 0 {
		return Never
	}
	return addInstant(m.at, m.until(l, most, 0))
}

// until returns how long it takes until the level has sunk to tokens and what
// drains in delay, in nanoseconds. The limit must not be 0.
func (m meter) until(l *Limit, tokens, delay int64) int64 {
	m.drain(l.units(tokens))
	m.drain(bits.Mul64(uint64(delay), uint64(l.Limit)))
	return divideUp(m.hi, m.lo, uint64(l.Limit))
}

// meterReturn gives back what would still be in the bucket of a request that
// found it empty. One that found it in use left more behind, but then the
// bucket may have run dry since, and what is in it now be others': to give all
// of it back would admit too much. At the instant of the step it gives back all.
func meterReturn(l *Limit, s State, now, takenAt, tokens int64) State {
	m := meterAt(l, s, now)
	left := meter{at: m.at}
	left.fill(l.units(tokens))
	left.drain(bits.Mul64(uint64(max(0, m.at-takenAt)), uint64(l.Limit)))
	m.drain(left.hi, left.lo)
	return m.state(l)
}
