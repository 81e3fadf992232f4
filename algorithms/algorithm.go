package algorithms

import "fmt"

// Algorithm names one way of counting. The zero value is not an algorithm.
type Algorithm uint8

// The algorithms. Their numbers travel between nodes: never renumber them. To add one,
// give it a number here, a line in registered, and a case in StepInto.
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
	// SlidingWindowBuckets counts sub-windows: as SlidingWindowLog does, except that
	// a token counts for up to a sub-window longer.
	SlidingWindowBuckets Algorithm = 5
	// SlidingWindowLog keeps the instant of every token: it is exact.
	SlidingWindowLog Algorithm = 6
	// LeakyBucket queues requests, Burst tokens of them at most, lets Limit per
	// Window go, and says how long each has to wait for its turn.
	LeakyBucket Algorithm = 7
)

// registered has every algorithm at its number. Each is declared in the file that has its steps.
var registered = [...]registration{
	SlidingWindow:        slidingWindowRegistration,
	FixedWindow:          fixedWindowRegistration,
	TokenBucket:          tokenBucketRegistration,
	GCRA:                 gcraRegistration,
	SlidingWindowBuckets: slidingBucketsRegistration,
	SlidingWindowLog:     slidingLogRegistration,
	LeakyBucket:          leakyBucketRegistration,
}

// registration is everything in which one algorithm differs from the others, except the
// case of StepInto.
type registration struct {
	name   string // that rules use, such as "sliding_window"
	traits traits
	most   int64 // the highest Limit.Limit, up to MaxLimit
	guide  Guide

	// Exactly one of these is set: a counter is a State or a Long.
	state stateCounter
	long  lendingCounter
}

// traits are what code outside an algorithm's own file has to know of it.
type traits uint8

const (
	// drains: the counter empties all the time. A Limit may have a Burst and a MaxDelay. Only of a counter that is a
	// meter: Hold and Outlast read it as one.
	drains traits = 1 << iota
	// queues: an allowed request waits for its turn. Only with drains.
	queues
	// forgets: at the end of each aligned window the counter forgets all that was taken in it.
	forgets
	// onCalendars: a Limit may have a Calendar in place of its Window.
	onCalendars
	// subWindows: a Limit may have Buckets. Only of a Long, whose clock ticks per nanosecond otherwise.
	subWindows
	// isLong: the counter is a Long. Set by traitsOf.
	isLong
)

// stateCounter counts in a State. Its methods keep what the functions Step, Return, Merge
// and Charge, the fields of Decision, and Limit.Capacity promise: a counter that was never
// used has room for all of it at any instant. It is an interface for the sake of the compiler, which names the
// method that an algorithm lacks. What is called through it gets the Limit by value: a
// pointer would move the caller's Limit to the heap.
type stateCounter interface {
	lendingCounter
	step(l *Limit, s State, now, cost int64, d *Decision) State
	giveBack(l Limit, s State, now, takenAt, tokens int64) State
	merge(l Limit, a, b State, now int64) State
	charge(l Limit, s State, now, takenAt, tokens int64) State
}

// lendingCounter keeps what the function LentUntil promises.
type lendingCounter interface {
	lentUntil(l Limit, at, resetAt int64) int64
}

// Guide is what the documentation says of an algorithm, in tables that have all of them.
// Each text is a cell: no newline, no vertical bar.
type Guide struct {
	Promise string // what passes at most in any stretch of a window's length
	Burst   string // what becomes of a burst
	Entries string // what one entry of a Long is; empty if the counter is a State
	GoodFor string // what to use the algorithm for
	Choose  string // when to choose it
}

// traitsOf has the traits of all values of Algorithm, so that a look does not check bounds.
var traitsOf = func() (all [256]traits) {
	for a, r := range registered {
		if all[a] = r.traits; r.long != nil {
			all[a] |= isLong
		}
	}
	return all
}()

func (a Algorithm) has(t traits) bool { return traitsOf[a]&t != 0 }

// known reports whether a is an algorithm.
func (a Algorithm) known() bool { return int(a) < len(registered) && registered[a].name != "" }

// Drains reports whether a counter of this algorithm drains all the time, so that a
// Return later than its step may give back less than was taken.
func (a Algorithm) Drains() bool { return a.has(drains) }

// Queues reports whether each request waits for its turn, so that an allowed one may have a
// Delay even if the Limit has no MaxDelay.
func (a Algorithm) Queues() bool { return a.has(queues) }

// Long reports whether counters of the algorithm are a Long instead of a State.
func (a Algorithm) Long() bool { return a.has(isLong) }

// Forgets reports whether windows are aligned and have an end, at which a counter forgets all of its tokens. A counter
// of another algorithm becomes as new little by little.
func (a Algorithm) Forgets() bool { return a.has(forgets) }

// HasCalendars reports whether a Limit may have a Calendar.
func (a Algorithm) HasCalendars() bool { return a.has(onCalendars) }

// HasBuckets reports whether a Limit may have Buckets.
func (a Algorithm) HasBuckets() bool { return a.has(subWindows) }

// MostTokens returns the highest Limit.Limit, in tokens per window. a must be one of All.
func (a Algorithm) MostTokens() int64 { return registered[a].most }

// Guide returns what the documentation says of the algorithm. a must be one of All.
func (a Algorithm) Guide() Guide { return registered[a].guide }

// String returns the name that rules use, such as "sliding_window".
func (a Algorithm) String() string {
	if a.known() {
		return registered[a].name
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}

// All lists the algorithms in the order of their numbers.
func All() (all []Algorithm) {
	for a := range registered {
		if Algorithm(a).known() {
			all = append(all, Algorithm(a))
		}
	}
	return all
}

// Names lists the names that Parse accepts, in the order of the numbers.
func Names() []string { return NamesOf(Algorithm.known) }

// NamesOf lists the names of the algorithms that a predicate holds for, in the order of their
// numbers.
func NamesOf(holds func(Algorithm) bool) (names []string) {
	for _, a := range All() {
		if holds(a) {
			names = append(names, a.String())
		}
	}
	return names
}

// Parse is the inverse of String.
func Parse(name string) (Algorithm, bool) {
	for a := range registered {
		if name != "" && registered[a].name == name {
			return Algorithm(a), true
		}
	}
	return 0, false
}
