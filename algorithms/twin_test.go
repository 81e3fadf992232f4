package algorithms

import (
	"math"
	"math/big"
)

// A twin is the dumb twin of an algorithm: slow, obvious, in exact rationals.
type twin interface {
	step(l *Limit, now, cost int64) verdict
	giveBack(l *Limit, now, takenAt, tokens int64)
	merge(l *Limit, other twin, now int64) // what another one of its kind has counted
	charge(l *Limit, now, takenAt, tokens int64)
}

// verdict is the part of a Decision that a twin knows.
type verdict struct {
	allowed          bool
	remaining, delay int64
}

func verdictOf(d Decision) verdict { return verdict{d.Allowed, d.Remaining, d.Delay} }

// twins make the twin of each algorithm.
var twins = map[Algorithm]func() twin{
	SlidingWindow:        func() twin { return &windowTwin{latest: math.MinInt64, weighPrevious: true} },
	FixedWindow:          func() twin { return &windowTwin{latest: math.MinInt64} },
	TokenBucket:          func() twin { return &bucketTwin{missing: new(big.Rat)} },
	GCRA:                 func() twin { return &scheduleTwin{increment: new(big.Rat), arrival: new(big.Rat)} },
	SlidingWindowBuckets: func() twin { return &logTwin{} },
	SlidingWindowLog:     func() twin { return &logTwin{} },
	LeakyBucket:          func() twin { return &queueTwin{bucketTwin{missing: new(big.Rat)}} },
}

func newTwin(a Algorithm) twin { return twins[a]() }

// windowTwin is the twin of both window counters: it keeps every hit.
type windowTwin struct {
	weighPrevious bool
	hits          []hit
	latest        int64 // the latest window that was written
}

type hit struct{ window, tokens int64 }

func (tw *windowTwin) in(window int64) (tokens int64) {
	for _, h := range tw.hits {
		if h.window == window {
			tokens += h.tokens
		}
	}
	return tokens
}

// remove takes at most tokens off a window, and returns how many it lacked.
func (tw *windowTwin) remove(window, tokens int64) (lacked int64) {
	removed := min(tokens, tw.in(window))
	tw.hits = append(tw.hits, hit{window, -removed})
	return tokens - removed
}

// window returns the window of now, or the latest one if time went backwards:
// its number, or a calendar's start, and how much of it has passed.
func (tw *windowTwin) window(l *Limit, now int64) (window, elapsed int64) {
	if window = now / max(1, l.Window); l.Calendar != nil {
		window, _ = l.Calendar.window(now)
		tw.latest = max(tw.latest, window)
		return tw.latest, 0
	}
	if elapsed = now % l.Window; tw.latest > window {
		elapsed = 0
	}
	tw.latest = max(tw.latest, window)
	return tw.latest, elapsed
}

func (tw *windowTwin) used(l *Limit, now int64) int64 {
	window, elapsed := tw.window(l, now)
	used := tw.in(window)
	if tw.weighPrevious {
		weight := big.NewRat(l.Window-elapsed, l.Window)
		carried := weight.Mul(weight, new(big.Rat).SetInt64(tw.in(window-1)))
		used += new(big.Int).Quo(carried.Num(), carried.Denom()).Int64()
	}
	return used
}

func (tw *windowTwin) step(l *Limit, now, cost int64) verdict {
	used := tw.used(l, now)
	switch {
	case cost < 0:
		if lacked := tw.remove(tw.latest, -cost); tw.weighPrevious {
			tw.remove(tw.latest-1, lacked)
		}
	case cost == 0:
	case used+cost <= l.Limit:
		tw.hits = append(tw.hits, hit{tw.latest, cost})
	default:
		return verdict{remaining: max(0, l.Limit-used)}
	}
	return verdict{allowed: true, remaining: max(0, l.Limit-tw.used(l, max(now, tw.latest*l.Window)))}
}

func (tw *windowTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	tw.used(l, now)
	if l.Calendar != nil {
		takenAt, _ = l.Calendar.window(takenAt)
		tw.remove(takenAt, tokens)
		return
	}
	tw.remove(takenAt/l.Window, tokens)
}
