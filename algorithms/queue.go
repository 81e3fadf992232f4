package algorithms

// A meter may make a request wait instead of denying it. Both ways book its
// tokens at once and answer a delay.
//
// token_bucket and gcra go into debt: a request that finds too little in the
// bucket waits until there would have been enough, MaxDelay at most. The level
// of the meter is then above its capacity, and the invariant
//
//	level <= capacity * window + limit * MaxDelay <= MaxLimit * window
//
// holds since Validate sees to the second half.
//
// leaky_bucket is the leaky bucket as a queue: a request has room if it fits
// into the capacity, and its turn comes when all that was booked before it has
// drained, so that requests leave at the limit's rate however they arrive. A
// MaxDelay denies those that would wait longer. Seen in A. Xu, "System Design
// Interview" (2020), ch. 4.

// queues reports whether an allowed request may have to wait.
func (l *Limit) queues() bool { return l.MaxDelay != 0 || l.Algorithm == LeakyBucket }

// queue decides about a cost that is above 0 and not above the capacity.
func (m *meter) queue(l *Limit, cost int64, d *Decision) {
	var turn, late int64 // how long until its tokens go, and until it may be booked
	room := l.Capacity() - cost
	switch {
	case l.Algorithm != LeakyBucket:
		turn, late = m.until(l, room, 0), m.until(l, room, l.MaxDelay)
	case l.MaxDelay == 0:
		turn, late = m.until(l, 0, 0), m.until(l, room, 0)
	default:
		turn, late = m.until(l, 0, 0), max(m.until(l, room, 0), m.until(l, 0, l.MaxDelay))
	}
	if d.Allowed = late == 0; d.Allowed {
		d.Delay = turn
	} else {
		d.RetryAt = addInstant(m.at, late)
	}
}

// closed reports whether the queue is too long for anybody to join, although
// the capacity may have room.
func (m *meter) closed(l *Limit) bool {
	return l.Algorithm == LeakyBucket && l.MaxDelay > 0 && l.Limit > 0 && m.until(l, 0, l.MaxDelay) > 0
}
