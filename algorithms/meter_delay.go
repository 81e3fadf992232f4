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
func (l *Limit) queues() bool { return l.MaxDelay != 0 || l.Algorithm.Queues() }

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
	if l.Algorithm.Queues() {
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

// room returns how many more tokens can be booked one by one without a delay that the
// algorithm could avoid. A queue with a MaxDelay takes the last one as long as what is
// before it has gone by then, so that its room ends there and not at the capacity.
func (m meter) room(l *Limit, full amount) int64 {
	room := int64(full.minus(m.amount).divide(uint64(l.Window)))
	if !l.Algorithm.Queues() || l.MaxDelay == 0 || l.Limit == 0 {
		return room
	}
	late := product(l.MaxDelay, l.Limit)
	if !m.minus(late).zero() {
		return 0
	}
	return min(room, clampTokens(late.minus(m.amount).divide(uint64(l.Window)))+1)
}

// clampTokens returns tokens, or more than any counter has room for if that is less.
func clampTokens(tokens uint64) int64 { return int64(min(tokens, MaxLimit)) }

// Room is the Remaining of an unused counter, in tokens: Capacity, or less if a MaxDelay keeps the
// queue of a LeakyBucket shorter.
func (l *Limit) Room() int64 {
	if !l.Algorithm.Queues() {
		return l.capacity()
	}
	return l.roomOfQueue()
}

func (l *Limit) roomOfQueue() int64 { return meter{}.room(l, l.units(l.capacity())) }
