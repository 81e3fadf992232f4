package algorithms

import "math/bits"

// The sliding-window log keeps the instant of every token and counts those of
// the last window, which is the definition that other algorithms approximate:
//
//	used(t) = tokens taken in (t - window, t]
//
// Denied requests are not logged. Seen in A. Xu, "System Design Interview"
// (2020), ch. 4, where they are.
//
// The sliding-window buckets are a log whose clock ticks once per sub-window of
// window / n: tokens of one tick share an entry, and those of the current tick
// and of the n before it count. Two instants less than a window apart are at
// most n ticks apart, so no window ever gets more than the limit; a token counts
// for less than window * (1 + 1/n), so none is denied that a log of so long a
// window would have let pass. Seen in N. Mahdi, "An alternative approach to rate
// limiting" (Figma, 2017), with 60 sub-windows.

// Long is what is remembered of one counter of an algorithm that is Long. The
// zero value is a counter that was never used. Its window belongs to it for good.
// It is changed in place: the caller makes sure that two calls never overlap.
type Long struct {
	ring    []entry // of which count are used, from head on and round the end
	head    int
	count   int
	before  int64 // total of the entry before the first
	latest  int64 // the latest instant of a step, in Unix nanoseconds
	buckets int64 // of the clock that the ticks are of, 0 for nanoseconds
}

// entry is the tokens of one tick. Ticks and totals rise from entry to entry.
type entry struct {
	tick  int64
	total int64 // of this entry and of all before it; only differences mean anything
}

// Bounds of what a Long holds.
const (
	entryBytes   = 16
	minEntries   = 4                   // a ring once made never gets shorter
	MaxLongBytes = MaxLog * entryBytes // buckets have at most MaxBuckets + 1 entries
)

// Long reports whether counters of the algorithm are a Long instead of a State.
func (a Algorithm) Long() bool { return a == SlidingWindowLog || a == SlidingWindowBuckets }

// Bytes returns how many bytes x holds on the heap besides itself, between 0 and
// MaxLongBytes. It rises by steps of twice what it was, and falls at a quarter.
func (x *Long) Bytes() int { return len(x.ring) * entryBytes }

// Step decides as the function Step does, whose contract it shares. Unless
// commit is true it only says what it would decide: nothing but the passing of
// time has an effect on x then. It panics for an algorithm that is not Long.
func (x *Long) Step(l *Limit, now, cost int64, commit bool) (d Decision) {
	k := clockOf(l)
	tick := x.roll(k, now)
	used := x.used()
	d.At, d.RetryAt, d.ResetAt = x.latest, x.latest, x.latest
	d.Allowed = cost <= 0 || cost <= l.Limit-used
	switch {
	case d.Allowed:
		used = max(0, used+cost)
	case cost > l.Limit:
		d.RetryAt = Never
	default:
		d.RetryAt = k.freed(x.tickOf(used + cost - l.Limit))
	}
	d.Remaining = max(0, l.Limit-used)
	switch {
	case used == 0:
	case d.Allowed && cost > 0:
		d.ResetAt = k.freed(tick)
	default:
		d.ResetAt = k.freed(x.tickOf(used))
	}
	switch {
	case !commit || !d.Allowed:
	case cost > 0:
		x.add(tick, cost, k.entries(l))
	default:
		x.keep(used)
	}
	return d
}

// Return gives back tokens that a Step has counted, as the function Return does.
func (x *Long) Return(l *Limit, now, takenAt, tokens int64) {
	k := clockOf(l)
	x.roll(k, now)
	tick := k.tick(takenAt)
	i := x.count - 1
	for i >= 0 && x.at(i).tick > tick {
		i--
	}
	if i < 0 || x.at(i).tick != tick {
		return
	}
	before := x.before
	if i > 0 {
		before = x.at(i - 1).total
	}
	tokens = min(tokens, x.at(i).total-before)
	for j := i; j < x.count; j++ {
		x.at(j).total -= tokens
	}
	if x.at(i).total == before {
		for j := i + 1; j < x.count; j++ {
			*x.at(j - 1) = *x.at(j)
		}
		x.count--
	}
}

// roll brings x to now, or leaves it at a later instant that it has seen, and
// returns the tick of that instant.
func (x *Long) roll(k clock, now int64) (tick int64) {
	if k.buckets != x.buckets {
		x.recut(k, now)
	}
	x.latest = max(x.latest, now)
	tick = k.tick(x.latest)
	for x.count > 0 && x.at(0).tick <= tick-k.span() {
		x.before = x.at(0).total
		x.head = x.index(1)
		x.count--
	}
	if x.count > 0 && x.at(x.count-1).tick > tick { // written under another window
		x.gather(tick)
	}
	if len(x.ring) > minEntries && x.count <= len(x.ring)/4 {
		x.resize(max(minEntries, 2*x.count))
	}
	return tick
}

// recut changes the clock. When within its sub-window a token was taken is not
// known, so all of them count as if they were taken now.
func (x *Long) recut(k clock, now int64) {
	x.roll(clock{k.window, x.buckets}, now)
	if x.buckets = k.buckets; x.count > 0 {
		x.gather(k.tick(x.latest))
	}
}

// gather lets all tokens, of which there must be some, count as if they were of one tick.
func (x *Long) gather(tick int64) {
	used := x.used()
	x.keep(0)
	x.add(tick, used, 1)
}

// used is how many tokens there are.
func (x *Long) used() int64 {
	if x.count == 0 {
		return 0
	}
	return x.at(x.count-1).total - x.before
}

// tickOf returns the tick of the n-th token, of which there must be as many.
func (x *Long) tickOf(n int64) int64 {
	low, high := 0, x.count-1 // it is in one of these entries, or between them
	for low < high {
		if i := (low + high) / 2; x.at(i).total-x.before >= n {
			high = i
		} else {
			low = i + 1
		}
	}
	return x.at(low).tick
}

// add appends tokens. There are never more than most entries.
func (x *Long) add(tick, tokens, most int64) {
	if x.count > 0 {
		if last := x.at(x.count - 1); last.tick == tick {
			last.total += tokens
			return
		}
	}
	if x.count == len(x.ring) {
		x.resize(min(max(minEntries, 2*x.count), int(most)))
	}
	total := x.before + x.used() + tokens
	x.count++
	*x.at(x.count - 1) = entry{tick, total}
}

// keep takes the newest tokens away until only used are left.
func (x *Long) keep(used int64) {
	for x.used() > used {
		x.count--
		if x.used() < used {
			x.count++
			x.at(x.count - 1).total = x.before + used
		}
	}
}

func (x *Long) resize(entries int) {
	ring := make([]entry, entries)
	for i := range x.count {
		ring[i] = *x.at(i)
	}
	x.ring, x.head = ring, 0
}

// at returns the i-th entry from the oldest on.
func (x *Long) at(i int) *entry { return &x.ring[x.index(i)] }

func (x *Long) index(i int) int {
	if i += x.head; i >= len(x.ring) {
		i -= len(x.ring)
	}
	return i
}

// clock divides time into ticks: sub-windows, or nanoseconds if buckets is 0.
type clock struct{ window, buckets int64 }

func clockOf(l *Limit) clock {
	switch {
	case l.Algorithm == SlidingWindowLog:
		return clock{l.Window, 0}
	case l.Algorithm != SlidingWindowBuckets:
		panic("algorithms: step of an invalid limit, or of one that is not long")
	case l.Buckets == 0:
		return clock{l.Window, DefaultBuckets}
	default:
		return clock{l.Window, l.Buckets}
	}
}

// tick returns the tick that an instant lies in, floor(t * buckets / window).
func (k clock) tick(t int64) int64 {
	if k.buckets == 0 {
		return t
	}
	hi, lo := bits.Mul64(uint64(t), uint64(k.buckets))
	tick, _ := bits.Div64(hi, lo, uint64(k.window)) // at most t * MaxBuckets / MinWindow < t
	return int64(tick)
}

// span returns for how many ticks a token counts, that in which it was taken
// included.
func (k clock) span() int64 {
	if k.buckets == 0 {
		return k.window
	}
	return k.buckets + 1
}

// freed returns the first instant at which the tokens of a tick do not count.
func (k clock) freed(tick int64) int64 {
	if k.buckets == 0 {
		return addInstant(tick, k.window)
	}
	return k.begin(tick + k.span())
}

// begin returns the first instant of a tick.
func (k clock) begin(tick int64) int64 {
	hi, lo := bits.Mul64(uint64(tick), uint64(k.window))
	return divideUp(hi, lo, uint64(k.buckets))
}

// entries returns how many there can be after a step that had room: each has a token, and a
// tick of its own.
func (k clock) entries(l *Limit) int64 {
	if k.buckets == 0 {
		return l.Limit
	}
	return min(l.Limit, k.span())
}
