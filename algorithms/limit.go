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
