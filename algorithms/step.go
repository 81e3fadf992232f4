package algorithms

// Step decides whether cost more tokens have room in the counter s at the
// instant now, and counts them if so.
//
// A cost of 0 only looks, a negative one gives tokens back, never below zero
// use; both are always allowed. l must be valid, cost between -MaxCost and
// MaxCost, and now not negative. A limit that has changed since s was written
// keeps what was used: a counter above its new limit denies until it is below.
// Time that goes backwards frees nothing: see Decision.At.
func Step(l *Limit, s State, now, cost int64) (next State, d Decision) {
	next = StepInto(&d, l, s, now, cost)
	return next, d
}

// StepInto is Step with the decision in place: to return it through two calls would
// copy it three times, a quarter of the cost of a step. All of d is overwritten.
// The cases call methods of known types: through registered, each Limit and Decision
// of a caller's stack would be allocated, and a step would take 75 ns instead of 11.
func StepInto(d *Decision, l *Limit, s State, now, cost int64) (next State) {
	d.Delay = 0 // the only field that a step may leave alone
	switch l.Algorithm {
	case SlidingWindow:
		return slidingWindow{}.step(l, s, now, cost, d)
	case FixedWindow:
		return fixedWindow{}.step(l, s, now, cost, d)
	case TokenBucket, GCRA, LeakyBucket:
		return bucket{}.step(l, s, now, cost, d)
	case SlidingWindowLog, SlidingWindowBuckets: // a Long has steps of its own
	}
	panic("algorithms: step of an invalid limit, or of a long one")
}

// Return gives back tokens that a Step has counted, as far as they still weigh
// on s at the instant now, and never below zero use. takenAt is that step's
// Decision.At. It undoes a request that another of its limits has denied.
func Return(l *Limit, s State, now, takenAt, tokens int64) State {
	return counterOf(l).giveBack(*l, s, now, takenAt, tokens)
}

// counterOf returns what counts under l, which must be valid and not long.
func counterOf(l *Limit) stateCounter {
	if int(l.Algorithm) < len(registered) {
		if c := registered[l.Algorithm].state; c != nil {
			return c
		}
	}
	panic("algorithms: a State under an invalid limit, or a long one")
}
