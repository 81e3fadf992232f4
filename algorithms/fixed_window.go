package algorithms

import "time"

// The fixed-window counter divides time into windows and counts the hits of the
// current one:
//
//	used = hits in [start, start + length)
//
// They are aligned to the Unix epoch, or follow a Calendar. It never admits more
// than the limit within one such window; across an edge, the last moments of
// one and the first of the next, it admits up to twice that. Seen in A. Xu,
// "System Design Interview" (2020), ch. 4.
//
// State.A is the index of the current window since the epoch, and State.B what
// was used of it, at most usedMask, and more than the highest limit that it was held
// against only after a Merge or Charge. Under a calendar State.A is the window's
// start in nanoseconds and the high 32 bits of State.B its length in seconds, so
// that only the first step in a window has to ask the calendar.
type fixed struct { // of four words, which stay in registers
	State
	at, end int64 // nanoseconds; start <= at <= end, the end of the window or of time
}

const usedMask = 1<<32 - 1 // of State.B

// fixedAt rolls s forward to now.
func fixedAt(l *Limit, s State, now int64) fixed {
	if l.Calendar != nil {
		return calendarAt(l, s, now)
	}
	index := windowIndex(l, int64(s.A), now)
	if index != int64(s.A) {
		s = State{A: uint64(index)}
	}
	start := index * l.Window
	return fixed{s, max(now, start), addInstant(start, l.Window)}
}

func calendarAt(l *Limit, s State, now int64) fixed {
	start, seconds := int64(s.A), int64(s.B>>32)
	end := addInstant(start, seconds*int64(time.Second))
	if seconds == 0 || now >= end {
		start, seconds = l.Calendar.window(now)
		end = addInstant(start, seconds*int64(time.Second))
		if uint64(start) != s.A { // or else the window ends with time
			s.B = 0
		}
		s = State{A: uint64(start), B: uint64(seconds)<<32 | s.B&usedMask}
	}
	return fixed{s, max(now, start), end}
}

// start returns when the window begins: before 1970 if a calendar's does.
func (f *fixed) start(l *Limit) int64 {
	if l.Calendar != nil {
		return int64(f.A)
	}
	return int64(f.A) * l.Window
}

// use changes by how much of the window is used, to 0 at the least.
func (f *fixed) use(cost int64) {
	used := max(0, int64(f.B&usedMask)+cost)
	f.B = f.B&^usedMask | uint64(used)
}

// fixedWindow counts in a fixed.
type fixedWindow struct{}

var fixedWindowRegistration = registration{
	name: "fixed_window", traits: forgets | onCalendars, most: MaxLimit, state: fixedWindow{},
	guide: Guide{
		Promise: "the limit per aligned window; twice the limit across an edge",
		Burst:   "allows up to the limit, again after each edge",
		GoodFor: "quotas per day or month",
		Choose:  "the limit is of a calendar's day or month, or people must see it reset at the full hour. Around an edge twice the limit passes",
	},
}

func (fixedWindow) step(l *Limit, s State, now, cost int64, d *Decision) State {
	f := fixedAt(l, s, now)
	d.At, d.RetryAt, d.ResetAt = f.at, f.at, f.at
	d.Allowed = cost <= 0 || cost <= l.Limit-int64(f.B&usedMask)
	switch {
	case d.Allowed:
		f.use(cost)
	case cost > l.Limit:
		d.RetryAt = Never
	default:
		d.RetryAt = f.end
	}
	used := int64(f.B & usedMask)
	if used > 0 {
		d.ResetAt = f.end
	}
	d.Remaining = max(0, l.Limit-used)
	return f.State
}

func (fixedWindow) giveBack(l Limit, s State, now, takenAt, tokens int64) State {
	f := fixedAt(&l, s, now)
	if f.start(&l) <= takenAt && takenAt <= max(f.at, f.end-1) {
		f.use(-tokens)
	}
	return f.State
}

// merge keeps the window that ends later: they differ only if the nodes do
// not agree on the calendar of a time zone.
func (fixedWindow) merge(l Limit, a, b State, now int64) State {
	x := fixedAt(&l, a, now)
	y := fixedAt(&l, b, x.at)
	x = fixedAt(&l, a, y.at)
	if x.end < y.end {
		x, y = y, x
	}
	x.add(int64(y.B & usedMask))
	return x.State
}

func (fixedWindow) charge(l Limit, s State, now, takenAt, tokens int64) State {
	f := fixedAt(&l, s, now)
	if f.start(&l) <= takenAt {
		f.add(tokens)
	}
	return f.State
}

// add counts hits of the window.
func (f *fixed) add(tokens int64) { f.use(min(tokens, usedMask-int64(f.B&usedMask))) }

// lentUntil returns the end of the window.
func (fixedWindow) lentUntil(_ Limit, _, resetAt int64) int64 { return resetAt }
