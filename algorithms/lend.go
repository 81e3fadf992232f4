package algorithms

// Tokens that are lent are counted when they are lent, and used later, by somebody who
// does not ask any more. That is harmless as long as a counter whose tokens count when
// they are used would never hold more than this one does: then whatever this one lets
// through has room in that one, too.
//
// A window counts a token the same wherever within it it is used. A bucket drains all
// the time: one that is never empty in between holds the same whether a token came
// early or late, so a loan may be used until what the bucket held before it, with the
// loans that are still out, would have drained. The log counts from the instant of
// use, and the queue books a turn: neither can lend.

// LentUntil returns the instant before which tokens may be used that are taken at an
// instant not before d.At, and before the one returned. d is the decision of a step of
// the same counter that has taken something and after which nothing was given back. It
// is at most d.At if nothing may be lent.
func LentUntil(l *Limit, d *Decision) int64 {
	switch {
	case l.Algorithm == SlidingWindow:
		return addInstant(d.At-d.At%l.Window, l.Window)
	case l.Algorithm == SlidingWindowBuckets:
		k := clockOf(l)
		return k.begin(k.tick(d.At) + 1)
	case l.Algorithm == FixedWindow, l.Algorithm.Drains() && !l.queues():
		return d.ResetAt // the end of the window; when the bucket would have drained
	default:
		return d.At
	}
}
