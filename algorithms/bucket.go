package algorithms

// bucket counts in a meter.
type bucket struct{}

var tokenBucketRegistration = registration{
	name: "token_bucket", traits: drains, most: MaxLimit, state: bucket{},
	guide: Guide{
		Promise: "burst + limit",
		Burst:   "allows up to the burst, then at the limit's rate",
		GoodFor: "APIs with short bursts; costs above 1",
		Choose:  "bursts are fine: up to `burst` at once, then one per window / limit",
	},
}

var gcraRegistration = registration{
	name: "gcra", traits: drains, most: MaxLimit, state: bucket{},
	guide: Guide{
		Promise: "burst + limit",
		Burst:   "as `token_bucket`",
		GoodFor: "the same, if you think of spacing",
		Choose:  "as the token bucket, with one number per counter",
	},
}

var leakyBucketRegistration = registration{
	name: "leaky_bucket", traits: drains | queues, most: MaxLimit, state: bucket{},
	guide: Guide{
		Promise: "the limit, as requests go",
		Burst:   "queues, and goes at the limit's rate",
		GoodFor: "what cannot stand bursts at all",
		Choose:  "requests should wait rather than be denied: each is told how long",
	},
}

func (bucket) step(l *Limit, s State, now, cost int64, d *Decision) State {
	m := meterAt(l, s, now)
	d.At, d.RetryAt = m.at, m.at
	capacity := l.capacity()
	full := l.units(capacity)
	if d.Allowed = cost <= 0; d.Allowed {
		m.amount = m.minus(l.units(-cost))
	} else {
		with := m.plus(l.units(cost))
		over := with.minus(full)
		switch {
		case cost > capacity:
			d.RetryAt = Never
		case l.queues():
			m.queue(l, over, d)
		case over.zero():
			d.Allowed = true
		default:
			d.RetryAt = after(m.at, l.drained(over))
		}
		if d.Allowed {
			m.amount = with
		}
	}
	idle := m.idle(l)
	d.ResetAt = after(m.at, idle)
	d.Remaining = m.room(l, full)
	return m.state(l)
}

// giveBack gives back what would still be in the bucket of a request that
// found it empty. One that found it in use left more behind, but then the
// bucket may have run dry since, and what is in it now be others': to give all
// of it back would admit too much. At the instant of the step it gives back all.
func (bucket) giveBack(l Limit, s State, now, takenAt, tokens int64) State {
	m := meterAt(&l, s, now)
	left := l.units(tokens).minus(product(max(0, m.at-takenAt), l.Limit))
	m.amount = m.minus(left)
	return m.state(&l)
}

// merge adds the two levels at the later of their instants: before it only one of them may have been in use, after it
// the sum drains once. As that instant begins a grain the sum may be what drains in a grain too much.
func (bucket) merge(l Limit, a, b State, _ int64) State {
	x, y := storedMeter(&l, a), storedMeter(&l, b)
	x, y = x.drainedTo(&l, y.at), y.drainedTo(&l, x.at)
	x.add(&l, y.amount)
	return x.state(&l)
}

// charge adds the tokens to the level at the instant of s, as long as it has not drained since: both then drain once. It
// moves to the instant of the tokens where the sum would be more than any limit.
func (bucket) charge(l Limit, s State, _, takenAt, tokens int64) State {
	return chargeMeter(l, s, takenAt, tokens, false)
}

// chargeMeter is charge. If the whole counter was in use since the instant of s, it adds the tokens at that instant also if s by itself has drained since.
func chargeMeter(l Limit, s State, takenAt, tokens int64, inUse bool) State {
	m, then := storedMeter(&l, s), meterAt(&l, s, takenAt)
	more := l.units(tokens).minus(product(then.at-takenAt, l.Limit))
	restarts := then.zero() && (m.zero() || !inUse)
	if restarts || !m.plus(more).minus(l.units(MaxLimit)).zero() {
		m = then
	}
	m.add(&l, more)
	return m.state(&l)
}

// lentUntil returns when the bucket would have drained. A limit whose callers may have to wait for a token lends none.
func (bucket) lentUntil(l Limit, at, resetAt int64) int64 {
	if l.queues() {
		return at
	}
	return resetAt
}
