package algorithms

// State is what is remembered of one counter. Only the algorithm that wrote it
// can read it. The zero value is a counter that was never used.
type State struct{ A, B uint64 }

// Decision is the answer of one step.
type Decision struct {
	// Allowed says whether the cost had room. The returned state has counted it
	// if so; a denial consumes nothing.
	Allowed bool
	// At is the instant at which the step took effect, in Unix nanoseconds: its
	// now, or an instant that the state remembers if that is later: time never
	// goes backwards for a counter.
	At int64
	// Remaining is how much more would have room right after this step, in
	// tokens and without a Delay if the algorithm has a choice, never negative.
	Remaining int64
	// ResetAt is the earliest instant at which the whole limit is free again if
	// nothing else comes, in Unix nanoseconds; At if it is free already. From
	// then on the state may be forgotten: it and the zero State decide alike, under
	// this limit; under a lower one, a state that drains would weigh for longer.
	// It stops at MaxInt64, the end of time.
	ResetAt int64
	// RetryAt is the earliest instant at which the same request would be allowed
	// if nothing else came, in Unix nanoseconds: At if it was allowed, and Never
	// if the cost is above the limit or would have to wait for the end of time.
	RetryAt int64
	// Delay is how long after At an allowed request has to wait for its turn, in
	// nanoseconds. Its tokens are booked already. 0 if its cost is not above 0.
	Delay int64
}

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
