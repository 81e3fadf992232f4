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

// Limit is what a counter is held against. It is a value: copy it freely.
type Limit struct {
	Algorithm Algorithm
	Limit     int64 // tokens per window, 0 (always denied) to MaxLimit
	Window    int64 // nanoseconds, MinWindow to MaxWindow
	// Burst is how many tokens may be taken at once, 0 (as many as Limit) to
	// MaxLimit. Only algorithms that refill continuously have one.
	Burst int64
	// MaxDelay is how long a request that has no room yet may be told to wait instead of being denied, in
	// nanoseconds. 0 means that nothing is booked ahead, except for LeakyBucket, whose queue then bounds
	// the delay alone.
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

// Share is l divided into equal shares, of which it returns one, rounded up.
func (l Limit) Share(of int64) Limit {
	l.Limit, l.Burst = divideUp(l.Limit, of), divideUp(l.Burst, of)
	return l
}

// divideUp is v / by rounded up, of a v that is not negative.
func divideUp(v, by int64) int64 { return (v + by - 1) / by }

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
