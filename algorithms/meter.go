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

// bucket counts in a meter.
type bucket struct{}

var tokenBucketRegistration = registration{
	name: "token_bucket", traits: drains, most: MaxLimit, state: bucket{},
	guide: Guide{
		Promise: "burst + limit",
		Burst:   "allows up to the burst, then at the limit's rate",
		GoodFor: "APIs with short bursts; costs above 1",
		Choose:  "bursts are fine: up to `burst` at once, then one per window / limit",
	},
}

var gcraRegistration = registration{
	name: "gcra", traits: drains, most: MaxLimit, state: bucket{},
	guide: Guide{
		Promise: "burst + limit",
		Burst:   "as `token_bucket`",
		GoodFor: "the same, if you think of spacing",
		Choose:  "as the token bucket, with one number per counter",
	},
}

func (bucket) step(l *Limit, s State, now, cost int64, d *Decision) State {
	m := meterAt(l, s, now)
	d.At, d.RetryAt = m.at, m.at
	capacity := l.capacity()
	full := l.units(capacity)
	if d.Allowed = cost <= 0; d.Allowed {
		m.amount = m.minus(l.units(-cost))
	} else {
		with := m.plus(l.units(cost))
		over := with.minus(full)
		switch {
		case cost > capacity:
			d.RetryAt = Never
		case l.queues():
			m.queue(l, over, d)
		case over.zero():
			d.Allowed = true
		default:
			d.RetryAt = after(m.at, l.drained(over))
		}
		if d.Allowed {
			m.amount = with
		}
	}
	idle := m.idle(l)
	d.ResetAt = after(m.at, idle)
	d.Remaining = m.room(l, full)
	return m.state(l)
}

// giveBack gives back what would still be in the bucket of a request that
// found it empty. One that found it in use left more behind, but then the
// bucket may have run dry since, and what is in it now be others': to give all
// of it back would admit too much. At the instant of the step it gives back all.
func (bucket) giveBack(l Limit, s State, now, takenAt, tokens int64) State {
	m := meterAt(&l, s, now)
	left := l.units(tokens).minus(product(max(0, m.at-takenAt), l.Limit))
	m.amount = m.minus(left)
	return m.state(&l)
}

// merge adds the two levels at the later of their instants: before it only one of them may have been in use, after it
// the sum drains once. As that instant begins a grain the sum may be what drains in a grain too much.
func (bucket) merge(l Limit, a, b State, _ int64) State {
	x, y := storedMeter(&l, a), storedMeter(&l, b)
	x, y = x.drainedTo(&l, y.at), y.drainedTo(&l, x.at)
	x.add(&l, y.amount)
	return x.state(&l)
}

// charge adds the tokens to the level at the instant of s, as long as it has not drained since: both then drain once. It
// moves to the instant of the tokens where the sum would be more than any limit.
func (bucket) charge(l Limit, s State, _, takenAt, tokens int64) State {
	m, then := storedMeter(&l, s), meterAt(&l, s, takenAt)
	more := l.units(tokens).minus(product(then.at-takenAt, l.Limit))
	if then.zero() || !m.plus(more).minus(l.units(MaxLimit)).zero() {
		m = then
	}
	m.add(&l, more)
	return m.state(&l)
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

// lentUntil returns when the bucket would have drained. Who may have to wait for a token is lent none.
func (bucket) lentUntil(l Limit, at, resetAt int64) int64 {
	if l.queues() {
		return at
	}
	return resetAt
}
