package algorithms

import (
	"math"
	"math/bits"
)

// amount is a number of 128 bits, which no sum here goes beyond.
type amount struct{ hi, lo uint64 }

// product returns a * b, of which neither may be negative.
func product(a, b int64) amount {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	return amount{hi, lo}
}

func (a amount) zero() bool { return a.hi|a.lo == 0 }

func (a amount) plus(b amount) amount {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	return amount{a.hi + b.hi + carry, lo}
}

// minus returns a - b, 0 at the least.
func (a amount) minus(b amount) amount {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, borrow := bits.Sub64(a.hi, b.hi, borrow)
	if borrow != 0 {
		return amount{}
	}
	return amount{hi, lo}
}

// divide returns floor(a / by), or MaxUint64 if that is less. Divisions are what takes
// longest here: it spares one that comes to nothing.
func (a amount) divide(by uint64) uint64 {
	switch {
	case a.hi == 0 && a.lo < by:
		return 0
	case a.hi >= by:
		return math.MaxUint64
	}
	q, _ := bits.Div64(a.hi, a.lo, by)
	return q
}

// divideUp returns ceil(a / by), or MaxUint64 if that is less.
func (a amount) divideUp(by uint64) uint64 { return a.plus(amount{lo: by - 1}).divide(by) }

// clamp returns ns, or MaxInt64 if that is less.
func clamp(ns uint64) int64 { return int64(min(ns, math.MaxInt64)) }

// after returns the instant ns after t, or the end of time if that is earlier.
func after(t int64, ns uint64) int64 { return addInstant(t, clamp(ns)) }
