package algorithms

import "math/big"

// A twin is the dumb twin of an algorithm: slow, obvious, in exact rationals.
type twin interface {
	step(l *Limit, now, cost int64) (allowed bool, remaining int64)
	giveBack(l *Limit, now, takenAt, tokens int64)
}

func newTwin(a Algorithm) twin {
	switch a {
	case FixedWindow:
		return &windowTwin{}
	case TokenBucket:
		return &bucketTwin{missing: new(big.Rat)}
	case GCRA:
		return &scheduleTwin{increment: new(big.Rat), arrival: new(big.Rat)}
	default:
		return &windowTwin{weighPrevious: true}
	}
}

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

func (tw *windowTwin) used(l *Limit, now int64) int64 {
	elapsed := now % l.Window
	if tw.latest > now/l.Window {
		elapsed = 0
	}
	tw.latest = max(tw.latest, now/l.Window)
	used := tw.in(tw.latest)
	if tw.weighPrevious {
		weight := big.NewRat(l.Window-elapsed, l.Window)
		carried := weight.Mul(weight, new(big.Rat).SetInt64(tw.in(tw.latest-1)))
		used += new(big.Int).Quo(carried.Num(), carried.Denom()).Int64()
	}
	return used
}

func (tw *windowTwin) step(l *Limit, now, cost int64) (allowed bool, remaining int64) {
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
		return false, max(0, l.Limit-used)
	}
	return true, max(0, l.Limit-tw.used(l, max(now, tw.latest*l.Window)))
}

func (tw *windowTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	tw.used(l, now)
	tw.remove(takenAt/l.Window, tokens)
}
