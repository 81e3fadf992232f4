package algorithms

// The fixed-window counter divides time into windows that are aligned to the
// Unix epoch and counts the hits of the current one:
//
//	used = hits in [index * window, (index + 1) * window)
//
// It never admits more than the limit within one such window; across an edge,
// the last moments of one and the first of the next, it admits up to twice that.
// Seen in A. Xu, "System Design Interview" (2020), ch. 4.
//
// State.A is the index of the current window since the epoch, State.B what was
// used of it, at most the highest limit that it was held against.
type fixed struct {
	index   int64
	at, end int64 // nanoseconds; index * window <= at < end, the end of the window
	used    int64 // tokens
}

// fixedAt rolls s forward to now.
func fixedAt(l *Limit, s State, now int64) fixed {
	f := fixed{index: windowIndex(l, int64(s.A), now)}
	if f.index == int64(s.A) {
		f.used = int64(s.B)
	}
	start := f.index * l.Window
	f.at, f.end = max(now, start), addInstant(start, l.Window)
	return f
}

func (f *fixed) state() State { return State{A: uint64(f.index), B: uint64(f.used)} }

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
	if takenAt/l.Window == f.index {
		f.used = max(0, f.used-tokens)
	}
	return f.state()
}
