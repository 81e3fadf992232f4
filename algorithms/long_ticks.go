package algorithms

import "math/bits"

// clock divides time into ticks: sub-windows, or nanoseconds if buckets is 0.
type clock struct{ window, buckets int64 }

func clockOf(l *Limit) clock {
	switch {
	case !l.Algorithm.Long():
		panic("algorithms: step of an invalid limit, or of one that is not long")
	case !l.Algorithm.HasBuckets():
		return clock{l.Window, 0}
	case l.Buckets == 0:
		return clock{l.Window, DefaultBuckets}
	default:
		return clock{l.Window, l.Buckets}
	}
}

// tick returns the tick that an instant lies in, floor(t * buckets / window).
func (k clock) tick(t int64) int64 {
	if k.buckets == 0 {
		return t
	}
	hi, lo := bits.Mul64(uint64(t), uint64(k.buckets))
	tick, _ := bits.Div64(hi, lo, uint64(k.window)) // at most t * MaxBuckets / MinWindow < t
	return int64(tick)
}

// span returns for how many ticks a token counts, that in which it was taken
// included.
func (k clock) span() int64 {
	if k.buckets == 0 {
		return k.window
	}
	return k.buckets + 1
}

// freed returns the first instant at which the tokens of a tick do not count.
func (k clock) freed(tick int64) int64 {
	if k.buckets == 0 {
		return addInstant(tick, k.window)
	}
	return k.begin(tick + k.span())
}

// begin returns the first instant of a tick.
func (k clock) begin(tick int64) int64 {
	return clamp(product(tick, k.window).divideUp(uint64(k.buckets)))
}

// entries returns how many there can be after a step that had room: each has a token, and a
// tick of its own.
func (k clock) entries(l *Limit) int64 {
	if k.buckets == 0 {
		return l.Limit
	}
	return min(l.Limit, k.span())
}
