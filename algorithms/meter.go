package algorithms

import "math/bits"

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
// makes of it is in meter_delay.go.
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
// While the limit stays the trace is exact, for any grain. Two things see
// it: a limit that changes acts from the beginning of the last step's grain on,
// which moves the level by half a token at most; and a now that went backwards
// past that beginning is taken for it.
type meter struct {
	at     int64 // nanoseconds
	amount       // level at the instant at, in 1/window tokens
}

// grain returns the bits of an instant that a state does not keep.
func grain(window int64) int { return max(0, bits.Len64(uint64(window))-33) }

// storedMeter returns s at the instant that it remembers.
func storedMeter(l *Limit, s State) meter {
	mask := uint64(2)<<grain(l.Window) - 1 // of A's bits that belong to the level
	return meter{int64((s.A &^ mask) >> 1), amount{s.A & mask, s.B}}
}

// meterAt drains s until now.
func meterAt(l *Limit, s State, now int64) meter { return storedMeter(l, s).drainedTo(l, now) }

// drainedTo drains m until now. If m.at is later it stays as it is.
func (m meter) drainedTo(l *Limit, now int64) meter {
	at := max(now, m.at)
	return meter{at, m.minus(product(at-m.at, l.Limit))}
}

func (m meter) state(l *Limit) State {
	rest := m.at & (1<<grain(l.Window) - 1)
	since := uint64(m.at-rest) << 1
	if m.zero() {
		return State{A: since}
	}
	level := m.plus(amount{lo: uint64(rest * l.Limit)}) // rest < 2^22
	return State{A: since | level.hi, B: level.lo}
}

// units returns tokens as a level.
func (l *Limit) units(tokens int64) amount { return product(tokens, l.Window) }

// drained returns how long it takes to drain a level, in nanoseconds, or MaxUint64 if
// that is less. The limit must not be 0.
func (l *Limit) drained(level amount) uint64 { return level.divideUp(uint64(l.Limit)) }

// idle returns how long it takes until the level is 0.
func (m meter) idle(l *Limit) uint64 {
	switch {
	case m.zero():
		return 0
	case l.Limit == 0: // It never drains. Do not remember it for ever.
		return uint64(l.Window)
	default:
		return l.drained(m.amount)
	}
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
