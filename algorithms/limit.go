// Package algorithms provides the arithmetic of rate limits: pure steps from
// (limit, state, now, cost) to (state, decision).
//
// No step reads a clock, waits, locks or allocates. Instants are Unix
// nanoseconds and come in with the call; the caller keeps the State between
// calls and makes sure that two steps on one State never overlap. Algorithms
// that need more than the 16 bytes of a State keep a Long instead, which is
// changed in place and allocates while it grows.
package algorithms

import (
	"fmt"
	"math"
	"time"
)

// Bounds of what a Limit may ask for. They keep every intermediate result of
// the integer arithmetic within 128 bits.
const (
	MinWindow = 10 * time.Millisecond
	MaxWindow = 366 * 24 * time.Hour
	MaxLimit  = 1 << 31 // tokens per window
	MaxCost   = 1 << 31 // tokens per request
	MaxLog    = 10_000  // tokens per window of SlidingWindowLog, which keeps each

	MaxBuckets     = 3600
	DefaultBuckets = 60
)

// Never is the RetryAt of a request that no amount of waiting lets pass.
const Never = math.MaxInt64

// Algorithm names one way of counting. The zero value is not an algorithm.
type Algorithm uint8

// The algorithms. Their numbers travel between nodes: never renumber them.
const (
	// SlidingWindow counts the current window and weighs the previous one by
	// how much of it still lies within the last window's length.
	SlidingWindow Algorithm = 1
	// FixedWindow counts the current window and forgets it at its end.
	FixedWindow Algorithm = 2
	// TokenBucket takes tokens from a bucket that holds Burst of them and refills
	// continuously, Limit per Window.
	TokenBucket Algorithm = 3
	// GCRA, the generic cell rate algorithm, spaces requests by Window / Limit
	// and lets Burst of them come early. It decides as TokenBucket does.
	GCRA Algorithm = 4
	// SlidingWindowBuckets counts sub-windows: as SlidingWindowLog does, but that
	// a token counts for up to a sub-window longer.
	SlidingWindowBuckets Algorithm = 5
	// SlidingWindowLog keeps the instant of every token: it is exact.
	SlidingWindowLog Algorithm = 6
	// LeakyBucket queues requests, Burst tokens of them at most, lets Limit per
	// Window go, and says how long each has to wait for its turn.
	LeakyBucket Algorithm = 7
)

var names = [...]string{
	SlidingWindow:        "sliding_window",
	FixedWindow:          "fixed_window",
	TokenBucket:          "token_bucket",
	GCRA:                 "gcra",
	SlidingWindowBuckets: "sliding_window_buckets",
	SlidingWindowLog:     "sliding_window_log",
	LeakyBucket:          "leaky_bucket",
}

// String returns the name that rules use, such as "sliding_window".
func (a Algorithm) String() string {
	if int(a) < len(names) && names[a] != "" {
		return names[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// Names lists the algorithms that Parse accepts, in the order of their numbers.
func Names() []string { return names[1:] }

// Parse is the inverse of String.
func Parse(name string) (Algorithm, bool) {
	for a, n := range names {
		if n == name && n != "" {
			return Algorithm(a), true
		}
	}
	return 0, false
}

// Limit is what a counter is held against. It is a value: copy it freely.
type Limit struct {
	Algorithm Algorithm
	Limit     int64 // tokens per window, 0 (always denied) to MaxLimit
	Window    int64 // nanoseconds, MinWindow to MaxWindow
	// Burst is how many tokens may be taken at once, 0 (as many as Limit) to
	// MaxLimit. Only algorithms that refill continuously have one.
	Burst int64
	// MaxDelay is how long a request that has no room yet may be told to wait
	// instead of being denied, in nanoseconds. 0 means that nothing is booked ahead,
	// but for LeakyBucket, whose queue then bounds the delay alone.
	MaxDelay int64
	// Buckets is into how many sub-windows SlidingWindowBuckets cuts a window, 0
	// for DefaultBuckets.
	Buckets int64
	// Calendar replaces Window, which is 0 then, by the days, months or so of a time
	// zone. Only FixedWindow may have one.
	Calendar *Calendar
}

// Capacity is what an unused counter has room for, in tokens: Limit, or Burst
// if there is one. It is also the highest cost that can ever be allowed.
func (l Limit) Capacity() int64 { return l.capacity() }

// capacity is Capacity without a copy of l.
func (l *Limit) capacity() int64 {
	if l.Burst == 0 || l.Limit == 0 {
		return l.Limit
	}
	return l.Burst
}

// Length is how long a window lasts, in nanoseconds, to be shown to people: a
// Calendar's differ in length, and this is the usual one, such as 30 days for a
// month.
func (l Limit) Length() int64 {
	if l.Calendar != nil {
		return int64(l.Calendar.unit.usual)
	}
	return l.Window
}

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
func StepInto(d *Decision, l *Limit, s State, now, cost int64) (next State) {
	d.Delay = 0 // the only field that a step may leave alone
	switch l.Algorithm {
	case SlidingWindow:
		return slidingWindow(l, s, now, cost, d)
	case FixedWindow:
		return fixedWindow(l, s, now, cost, d)
	case TokenBucket, GCRA, LeakyBucket:
		return meterStep(l, s, now, cost, d)
	default:
		panic("algorithms: step of an invalid limit, or of a long one")
	}
}

// Return gives back tokens that a Step has counted, as far as they still weigh
// on s at the instant now, and never below zero use. takenAt is that step's
// Decision.At. It undoes a request that another of its limits has denied.
func Return(l *Limit, s State, now, takenAt, tokens int64) State {
	switch l.Algorithm {
	case SlidingWindow:
		return slidingWindowReturn(l, s, now, takenAt, tokens)
	case FixedWindow:
		return fixedWindowReturn(l, s, now, takenAt, tokens)
	case TokenBucket, GCRA, LeakyBucket:
		return meterReturn(l, s, now, takenAt, tokens)
	default:
		panic("algorithms: return to an invalid limit, or to a long one")
	}
}
