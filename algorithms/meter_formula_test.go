package algorithms

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The formulas of the meter, each on its own and in integers that have no end. They know
// all of a Decision and the State, which the twins do not.

func times(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// less returns a - b, 0 at the least.
func less(a, b *big.Int) *big.Int {
	c := new(big.Int).Sub(a, b)
	if c.Sign() < 0 {
		c.SetInt64(0)
	}
	return c
}

func sum(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }

// wait returns ceil(level / by), or MaxInt64 if that is less.
func wait(level *big.Int, by int64) int64 {
	q := sum(level, big.NewInt(by-1))
	if q.Quo(q, big.NewInt(by)); q.IsInt64() {
		return q.Int64()
	}
	return math.MaxInt64
}

// levelOf returns what a state keeps, and stateOf is its inverse.
func levelOf(l *Limit, s State) (level *big.Int, since int64) {
	bits := grain(l.Window) + 1
	level = new(big.Int).SetUint64(s.A & (1<<bits - 1))
	level.Lsh(level, 64)
	return level.Or(level, new(big.Int).SetUint64(s.B)), int64(s.A >> bits << (bits - 1))
}

func stateOf(l *Limit, level *big.Int, at int64) (s State) {
	since := whole(l, at)
	if level.Sign() > 0 {
		level = sum(level, times(at-since, l.Limit))
	}
	s.B = new(big.Int).And(level, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
	s.A = uint64(since)<<1 | new(big.Int).Rsh(level, 64).Uint64()
	return s
}

func meterFormula(l *Limit, s State, now, cost int64) (State, Decision) {
	level, since := levelOf(l, s)
	at := max(now, since)
	level = less(level, times(at-since, l.Limit))
	d := Decision{Allowed: cost <= 0, At: at, RetryAt: at}
	switch {
	case cost <= 0:
	case cost > l.Capacity():
		d.RetryAt = Never
	default:
		room := less(level, times(l.Capacity()-cost, l.Window)) // what has to drain for it to fit
		late, delay := wait(room, l.Limit), int64(0)
		switch {
		case !l.Algorithm.Queues() && l.MaxDelay > 0:
			late, delay = wait(less(room, times(l.MaxDelay, l.Limit)), l.Limit), late
		case l.Algorithm.Queues():
			if delay = wait(level, l.Limit); l.MaxDelay > 0 {
				late = max(late, wait(less(level, times(l.MaxDelay, l.Limit)), l.Limit))
			}
		}
		if d.Allowed = late == 0; d.Allowed {
			d.Delay = delay
		} else {
			d.RetryAt = addInstant(at, late)
		}
	}
	if d.Allowed {
		level = sum(level, times(cost, l.Window))
		level = less(level, new(big.Int))
	}
	d.Remaining = max(0, l.Capacity()-wait(level, l.Window))
	if late := times(l.MaxDelay, l.Limit); l.Algorithm.Queues() && l.MaxDelay > 0 && l.Limit > 0 {
		if level.Cmp(late) > 0 {
			d.Remaining = 0
		} else if most := new(big.Int).Quo(less(late, level), big.NewInt(l.Window)); most.Cmp(big.NewInt(d.Remaining)) < 0 {
			d.Remaining = most.Int64() + 1
		}
	}
	switch {
	case level.Sign() == 0:
		d.ResetAt = at
	case l.Limit == 0:
		d.ResetAt = addInstant(at, l.Window)
	default:
		d.ResetAt = addInstant(at, wait(level, l.Limit))
	}
	return stateOf(l, level, at), d
}

// drawExtreme returns often what is near an end of 0 to most.
func drawExtreme(t *rapid.T, most int64, label string) int64 {
	return rapid.OneOf(
		rapid.SampledFrom([]int64{0, 1, 2, 3, 10, most / 2, most - 1, most}),
		rapid.Int64Range(0, most),
	).Draw(t, label)
}

func drawExtremeMeter(t *rapid.T, a Algorithm, window int64) *Limit {
	l := &Limit{
		Algorithm: a, Window: window,
		Limit: drawExtreme(t, MaxLimit, "limit"), Burst: drawExtreme(t, MaxLimit, "burst"),
		MaxDelay: drawExtreme(t, int64(MaxWindow), "max delay"),
	}
	if l.Validate() != nil { // they book too much ahead
		l.MaxDelay = 0
	}
	return l
}

// What the step spares itself changes nothing, not even at the extremes.
func TestMeterAgainstItsFormulas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SampledFrom([]Algorithm{TokenBucket, GCRA, LeakyBucket}).Draw(t, "algorithm")
		window := rapid.OneOf(
			rapid.SampledFrom([]int64{int64(MinWindow), int64(time.Second), 1<<33 - 1, 1 << 33, 1<<54 - 1, 1 << 54, int64(MaxWindow)}),
			rapid.Int64Range(int64(MinWindow), int64(MaxWindow)),
		).Draw(t, "window")
		limits := []*Limit{drawExtremeMeter(t, a, window), drawExtremeMeter(t, a, window)}
		now := drawExtreme(t, math.MaxInt64, "start")
		var s State
		for range 20 {
			l := rapid.SampledFrom(limits).Draw(t, "limit of the step")
			cost := drawExtreme(t, MaxCost, "cost") * rapid.SampledFrom([]int64{1, 1, 1, -1}).Draw(t, "sign")
			got, d := Step(l, s, now, cost)
			want, wantD := meterFormula(l, s, now, cost)
			if got != want || d != wantD {
				t.Fatalf("%+v from %+v at %d cost %d: %+v, %+v, want %+v, %+v", *l, s, now, cost, got, d, want, wantD)
			}
			s = got
			most := rapid.SampledFrom([]int64{0, 1000, window, math.MaxInt64}).Draw(t, "most")
			now = addInstant(now, drawExtreme(t, max(4, most), "move"))
		}
	})
}
