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

// WaitAtMost returns l for callers who can wait for d nanoseconds at most: a request
// whose turn would come later is denied instead of booked. 0 stands for 1, so as not to mean
// that a queue has no such bound. Counters of l and of what is returned are the same.
func (l Limit) WaitAtMost(d int64) Limit {
	if d = max(1, d); l.queues() && (l.MaxDelay == 0 || l.MaxDelay > d) {
		l.MaxDelay = d
	}
	return l
}

// queue decides about a cost that would raise the level by over above the capacity.
func (m meter) queue(l *Limit, over amount, d *Decision) {
	room := l.drained(over)
	delay, late := room, room-min(room, uint64(l.MaxDelay)) // until its tokens go, and until it may be booked
	if l.Algorithm == LeakyBucket {
		delay, late = l.drained(m.amount), room
		if l.MaxDelay > 0 {
			late = max(late, delay-min(delay, uint64(l.MaxDelay)))
		}
	}
	if d.Allowed = late == 0; d.Allowed {
		d.Delay = clamp(delay)
	} else {
		d.RetryAt = after(m.at, late)
	}
}

// closed reports whether the queue, which takes idle to drain, is too long for anybody
// to join, although the capacity may have room.
func (m meter) closed(l *Limit, idle uint64) bool {
	return l.Algorithm == LeakyBucket && l.MaxDelay > 0 && l.Limit > 0 && idle > uint64(l.MaxDelay)
}
