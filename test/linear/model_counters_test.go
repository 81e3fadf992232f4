package linear

import (
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// maxCounters is how many counters a history has at most.
const maxCounters = 4

// instant is when the model decides about yearly limits. Any other of the same window would do.
var instant = time.Now().UnixNano()

// check is what a client asks: tokens of some counters of a history, all or none.
type check struct {
	counters []int
	cost     int64
	peek     bool
	from, to int64 // when it was asked and answered, in Unix nanoseconds
}

// clockError is by how much the clocks of nodes and of this process may differ, which run on one machine.
const clockError = 20 * time.Millisecond

// instants returns instants that stand for all at which a check may have been decided.
func (k *kind) instants(c check) (all []int64) {
	if k.grid == 0 {
		return []int64{instant}
	}
	grid := int64(k.grid)
	for at := (c.from - int64(clockError)) / grid * grid; at <= c.to+int64(clockError); at += grid {
		all = append(all, at)
	}
	return all
}

// counter is what one counter has counted. Two counters that are equal decide alike.
type counter struct {
	algorithms.State
	long string // an encoded algorithms.Long
}

// allCounters is all counters of a history.
type allCounters [maxCounters]counter

// decision is what the sequential counters say of a check.
type decision struct {
	allowed   bool
	remaining [maxCounters]int64 // of the counters that the check takes from
	turn      int64              // how many tokens go before
}

// decide takes one check at an instant, after those that have led to s.
func (k *kind) decide(s allCounters, c check, at int64) (next allCounters, d decision) {
	next, d.allowed = s, true
	var allowed [maxCounters]bool
	for _, i := range c.counters {
		step := next[i].step(&k.limits[i], at, c.cost)
		d.remaining[i], allowed[i] = step.Remaining, step.Allowed
		d.allowed = d.allowed && step.Allowed
		d.turn = max(d.turn, k.turn(i, step.Delay))
	}
	if d.allowed {
		if c.peek {
			next = s
		}
		return next, d
	}
	d.turn = 0
	for _, i := range c.counters {
		if allowed[i] { // it took nothing
			d.remaining[i] = s[i].room(&k.limits[i], at)
		}
	}
	return s, d
}

// step takes tokens at an instant.
func (c *counter) step(l *algorithms.Limit, at, cost int64) (d algorithms.Decision) {
	if !l.Algorithm.Long() {
		c.State, d = algorithms.Step(l, c.State, at, cost)
		return d
	}
	var x algorithms.Long
	if c.long != "" {
		if err := x.UnmarshalBinary([]byte(c.long)); err != nil {
			panic(err) // it was written below
		}
	}
	d = x.Step(l, at, cost, true)
	c.long = string(x.AppendBinary(nil))
	return d
}

// room returns how many tokens are left at an instant.
func (c counter) room(l *algorithms.Limit, at int64) int64 { return c.step(l, at, 0).Remaining }

// turn returns how many tokens have their turn within a delay of a limit.
func (k *kind) turn(i int, delay int64) int64 {
	each := k.limits[i].Window / k.limits[i].Limit
	return (delay + each/2) / each
}

// owed returns how many tokens may be taken beyond what is left, with a delay.
func (k *kind) owed() int64 {
	l := &k.limits[0]
	return l.MaxDelay / (l.Window / l.Limit)
}
