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
// was used of it, at most the highest limit that it was held against. Under a
// calendar State.A is the window's start in nanoseconds and the high 32 bits of
// State.B its length in seconds, so that only the first step in a window has to
// ask the calendar.
type fixed struct {
	id      int64 // State.A
	seconds int64 // the high half of State.B
	start   int64 // nanoseconds; below 0 if a calendar's window began before 1970
	end     int64 // nanoseconds, the end of time at most; start <= at <= end
	at      int64
	used    int64 // tokens, 0 <= used < 1<<32
}

// fixedAt rolls s forward to now.
func fixedAt(l *Limit, s State, now int64) fixed {
	if l.Calendar != nil {
		return calendarAt(l, s, now)
	}
	f := fixed{id: windowIndex(l, int64(s.A), now)}
	if f.id == int64(s.A) {
		f.used = int64(s.B)
	}
	f.start = f.id * l.Window
	f.at, f.end = max(now, f.start), addInstant(f.start, l.Window)
	return f
}

func calendarAt(l *Limit, s State, now int64) fixed {
	f := fixed{id: int64(s.A), seconds: int64(s.B >> 32), used: int64(s.B & (1<<32 - 1))}
	f.end = addInstant(f.id, f.seconds*int64(time.Second))
	if f.seconds == 0 || now >= f.end {
		id := f.id
		f.id, f.seconds = l.Calendar.window(now)
		f.end = addInstant(f.id, f.seconds*int64(time.Second))
		if f.id != id {
			f.used = 0
		}
	}
	f.start, f.at = f.id, max(now, f.id)
	return f
}

func (f *fixed) state() State {
	return State{A: uint64(f.id), B: uint64(f.seconds)<<32 | uint64(f.used)}
}

func fixedWindow(l *Limit, s State, now, cost int64, d *Decision) State {
	f := fixedAt(l, s, now)
	d.At, d.RetryAt, d.ResetAt = f.at, f.at, f.at
	d.Allowed = cost <= 0 || cost <= l.Limit-f.used
	switch {
	case d.Allowed:
		f.used = max(0, f.used+cost)
	case cost > l.Limit:
		d.RetryAt = Never
	default:
		d.RetryAt = f.end
	}
	if f.used > 0 {
		d.ResetAt = f.end
	}
	d.Remaining = max(0, l.Limit-f.used)
	return f.state()
}

func fixedWindowReturn(l *Limit, s State, now, takenAt, tokens int64) State {
	f := fixedAt(l, s, now)
	if f.start <= takenAt && takenAt <= max(f.at, f.end-1) {
		f.used = max(0, f.used-tokens)
	}
	return f.state()
}
