package algorithms

import "slices"

// counter is a counter of any algorithm. Copy it with clone.
type counter struct {
	state State
	long  Long
}

func (c *counter) step(l *Limit, now, cost int64) (d Decision) {
	if l.Algorithm.Long() {
		return c.long.Step(l, now, cost, true)
	}
	c.state, d = Step(l, c.state, now, cost)
	return d
}

// look says what step would.
func (c *counter) look(l *Limit, now, cost int64) (d Decision) {
	if l.Algorithm.Long() {
		return c.long.Step(l, now, cost, false)
	}
	_, d = Step(l, c.state, now, cost)
	return d
}

func (c *counter) giveBack(l *Limit, now, takenAt, tokens int64) {
	if l.Algorithm.Long() {
		c.long.Return(l, now, takenAt, tokens)
		return
	}
	c.state = Return(l, c.state, now, takenAt, tokens)
}

func (c counter) clone() *counter {
	c.long.ring = slices.Clone(c.long.ring)
	return &c
}

// hits lists the tokens of each tick.
func (c *counter) hits() (hits []hit) {
	before := c.long.before
	for i := range c.long.count {
		e := c.long.at(i)
		hits = append(hits, hit{e.tick, e.total - before})
		before = e.total
	}
	return hits
}

// equal reports whether two counters remember the same.
func (c *counter) equal(other *counter) bool {
	return c.state == other.state && c.long.latest == other.long.latest && slices.Equal(c.hits(), other.hits())
}

// merge adds other, which stays what it is.
func (c *counter) merge(l *Limit, other *counter, now int64) {
	if l.Algorithm.Long() {
		c.long.Merge(l, &other.clone().long, now)
		return
	}
	c.state = Merge(l, c.state, other.state, now)
}

// merged returns what a and b are together, and changes neither.
func merged(l *Limit, a, b *counter, now int64) *counter {
	c := a.clone()
	c.merge(l, b, now)
	return c
}

func (c *counter) chargeInUse(l *Limit, now, takenAt, tokens int64) {
	if l.Algorithm.Long() {
		c.long.Charge(l, now, takenAt, tokens)
		return
	}
	c.state = ChargeInUse(l, c.state, now, takenAt, tokens)
}

func (c *counter) charge(l *Limit, now, takenAt, tokens int64) {
	if l.Algorithm.Long() {
		c.long.Charge(l, now, takenAt, tokens)
		return
	}
	c.state = Charge(l, c.state, now, takenAt, tokens)
}
