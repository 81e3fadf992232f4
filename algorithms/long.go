package algorithms

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
// window would have allowed. Seen in N. Mahdi, "An alternative approach to rate
// limiting" (Figma, 2017), with 60 sub-windows.

var slidingLogRegistration = registration{
	name: "sliding_window_log", most: MaxLog, long: slidingLog{},
	guide: Guide{
		Promise: "the limit",
		Burst:   "allows up to the limit",
		Entries: "one for each instant at which tokens were taken, 10,000 at most",
		GoodFor: "few keys and small limits, such as log-ins",
		Choose:  "it must be exact, and the limit is small: it keeps every token, 10,000 at most",
	},
}

var slidingBucketsRegistration = registration{
	name: "sliding_window_buckets", traits: subWindows, most: MaxLimit, long: slidingBuckets{},
	guide: Guide{
		Promise: "the limit",
		Burst:   "allows up to the limit",
		Entries: "one for each sub-window in use",
		GoodFor: "a limit that must hold, of any size",
		Choose:  "it must be nearly exact and the limit is large: a token counts for up to window / `buckets` longer",
	},
}

type (
	slidingLog     struct{}
	slidingBuckets struct{}
)

// lentUntil lends nothing: tokens count from the instant of use.
func (slidingLog) lentUntil(_ Limit, at, _ int64) int64 { return at }

// lentUntil returns the end of the sub-window.
func (slidingBuckets) lentUntil(l Limit, at, _ int64) int64 {
	k := clockOf(&l)
	return k.begin(k.tick(at) + 1)
}

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

// Bytes returns how many bytes x holds on the heap, without x itself, between 0 and MaxLongBytes. It rises
// by steps of twice what it was, and falls at a quarter.
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
	n += x.before
	if first := x.at(0); first.total >= n { // most ask for it, or for the last one
		return first.tick
	}
	low, high := 1, x.count-1 // it is in one of these entries, or between them
	if x.at(high-1).total < n {
		low = high
	}
	for low < high {
		if i := (low + high) / 2; x.at(i).total >= n {
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
