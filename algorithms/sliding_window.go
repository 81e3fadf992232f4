package algorithms

import (
	"math"
	"math/bits"
)

// The sliding-window counter divides time into windows that are aligned to the
// Unix epoch, counts the current one, and takes the previous one's hits to be
// spread evenly over it: at the share e of the current window,
//
//	used = current + floor(previous * (1 - e))
//
// It never admits more than the limit within one aligned window; within an
// arbitrary stretch of a window's length an adversary can get almost twice that.
// Seen in Cloudflare, "How we built rate limiting capable of scaling to millions
// of domains" (2017), and in A. Xu, "System Design Interview" (2020), ch. 4.
//
// A negative cost is taken from the current window's hits first, then from the
// previous one's: there a token weighs, and so frees, less than one.
//
// State.A is the index of the current window since the epoch, State.B holds
// previous and current in its high and low 32 bits.
type window struct {
	index      int64
	start, now int64 // nanoseconds; start <= now < start + length
	prev, cur  int64 // tokens, 0 <= each < 1<<32
	length     int64
}

// load rolls s forward to now. It fills w in place: six words do not fit into
// registers, and to return them would copy them, half the cost of a step.
func (w *window) load(l *Limit, s State, now int64) {
	w.index, w.length = windowIndex(l, int64(s.A), now), l.Window
	switch w.index - int64(s.A) {
	case 0:
		w.prev, w.cur = int64(s.B>>32), int64(s.B&math.MaxUint32)
	case 1:
		w.prev = int64(s.B & math.MaxUint32)
	}
	w.start = w.index * w.length
	w.now = max(now, w.start)
}

// windowIndex returns the index of the window that now lies in, or last, the
// one that the state was written in, if time went backwards. Most steps meet
// the same window or the next: they do not pay for a division.
func windowIndex(l *Limit, last, now int64) int64 {
	switch into := now - last*l.Window; {
	case into < l.Window:
		return last
	case into-l.Window < l.Window:
		return last + 1
	default:
		return now / l.Window
	}
}

func (w *window) state() State {
	return State{A: uint64(w.index), B: uint64(w.prev)<<32 | uint64(w.cur)}
}

// used is what weighs on the limit at w.now, in tokens, rounded down.
func (w *window) used() int64 {
	if w.prev == 0 {
		return w.cur
	}
	// Only a state that another limit has written leaves more than a window.
	left := min(uint64(w.start+w.length-w.now), uint64(w.length))
	hi, lo := bits.Mul64(uint64(w.prev), left)
	carried, _ := bits.Div64(hi, lo, uint64(w.length)) // left <= length, so it fits
	return w.cur + int64(carried)
}

// decayed returns the first instant in the window that starts at start at which
// floor(hits * left / length) <= most, where left is what remains of it. hits
// must be above most.
func decayed(start, length, hits, most int64) int64 {
	// floor(hits*left/length) <= most  <=>  left <= ((most+1)*length - 1) / hits
	hi, lo := bits.Mul64(uint64(most+1), uint64(length))
	lo, borrow := bits.Sub64(lo, 1, 0)
	left, _ := bits.Div64(hi-borrow, lo, uint64(hits)) // most < hits, so left <= length
	return addInstant(start, length-int64(left))
}

// addInstant adds a duration to an instant and stops at the end of time.
func addInstant(t, d int64) int64 {
	if t > math.MaxInt64-d {
		return math.MaxInt64
	}
	return t + d
}

// slidingWindow counts in a window.
type slidingWindow struct{}

var slidingWindowRegistration = registration{
	name: "sliding_window", most: MaxLimit, state: slidingWindow{},
	guide: Guide{
		Promise: "the limit per aligned window; less than twice the limit in any",
		Burst:   "allows up to the limit",
		GoodFor: "nearly everything",
		Choose:  "in doubt. Two numbers per counter; the window before counts by how much of it still lies within the last window's length",
	},
}

func (slidingWindow) step(l *Limit, s State, now, cost int64, d *Decision) State {
	var w window
	w.load(l, s, now)
	used := w.used()
	d.At, d.RetryAt = w.now, w.now
	d.Allowed = cost <= 0 || cost <= l.Limit-used
	switch {
	case !d.Allowed:
		d.RetryAt = w.retryAt(l, cost)
	case cost >= 0:
		w.cur += cost
		used += cost
	default:
		w.giveBack(-cost)
		used = w.used()
	}
	d.Remaining = max(0, l.Limit-used)
	d.ResetAt = w.resetAt(used)
	return w.state()
}

// giveBack takes tokens off the current window, then off the previous one.
func (w *window) giveBack(tokens int64) {
	fromCur := min(tokens, w.cur)
	w.cur -= fromCur
	w.prev = max(0, w.prev-(tokens-fromCur))
}

// retryAt returns when cost, which has no room at w.now, would have it.
func (w *window) retryAt(l *Limit, cost int64) int64 {
	most := l.Limit - cost // what may weigh on the limit for cost to fit
	switch {
	case most < 0:
		return Never
	case w.cur <= most: // the previous window fades enough within this one
		return decayed(w.start, w.length, w.prev, most-w.cur)
	default: // this window's own hits must fade, in the next one
		return decayed(addInstant(w.start, w.length), w.length, w.cur, most)
	}
}

// resetAt returns when nothing weighs on the limit any more.
func (w *window) resetAt(used int64) int64 {
	switch {
	case w.cur > 0:
		return decayed(addInstant(w.start, w.length), w.length, w.cur, 0)
	case used > 0:
		return decayed(w.start, w.length, w.prev, 0)
	default:
		return w.now
	}
}

func (slidingWindow) giveBack(l Limit, s State, now, takenAt, tokens int64) State {
	var w window
	w.load(&l, s, now)
	switch takenAt / l.Window {
	case w.index:
		w.cur = max(0, w.cur-tokens)
	case w.index - 1:
		w.prev = max(0, w.prev-tokens)
	}
	return w.state()
}

func (slidingWindow) merge(l Limit, a, b State, now int64) State {
	var x, y window
	x.load(&l, a, now)
	y.load(&l, b, x.now)
	x = window{}
	x.load(&l, a, y.now)
	x.add(y.prev, y.cur)
	return x.state()
}

func (slidingWindow) charge(l Limit, s State, now, takenAt, tokens int64) State {
	var w window
	w.load(&l, s, now)
	switch takenAt / l.Window {
	case w.index:
		w.add(0, tokens)
	case w.index - 1:
		w.add(tokens, 0)
	}
	return w.state()
}

// add counts hits of the previous and the current window.
func (w *window) add(prev, cur int64) {
	w.prev = min(w.prev+prev, math.MaxUint32)
	w.cur = min(w.cur+cur, math.MaxUint32)
}

// lentUntil returns the end of the current window.
func (slidingWindow) lentUntil(l Limit, at, _ int64) int64 {
	return addInstant(at-at%l.Window, l.Window)
}
