package algorithms

import "math/big"

// logTwin is the twin of both long algorithms: it keeps every token that was
// ever taken, and when, and looks at all of them whenever it is asked.
type logTwin struct {
	hits    []hit // window is the instant
	now     int64
	buckets int64
}

// counts reports whether a token taken at an instant still counts now.
func (tw *logTwin) counts(l *Limit, taken int64) bool {
	if !l.Algorithm.HasBuckets() {
		return tw.now-taken < l.Window
	}
	return bucketOf(l, tw.now)-bucketOf(l, taken) <= buckets(l)
}

func buckets(l *Limit) int64 {
	if l.Buckets == 0 {
		return DefaultBuckets
	}
	return l.Buckets
}

// bucketOf returns the number of the sub-window that an instant lies in.
func bucketOf(l *Limit, instant int64) int64 {
	product := new(big.Int).Mul(big.NewInt(instant), big.NewInt(buckets(l)))
	return product.Div(product, big.NewInt(l.Window)).Int64()
}

func (tw *logTwin) at(l *Limit, now int64) {
	tw.now = max(tw.now, now)
	if tw.buckets != 0 && tw.buckets != buckets(l) { // all that counts is from now
		with := *l
		with.Buckets = tw.buckets
		used := tw.used(&with)
		tw.hits = []hit{{tw.now, used}}
	}
	tw.buckets = buckets(l)
}

func (tw *logTwin) used(l *Limit) (used int64) {
	for _, h := range tw.hits {
		if tw.counts(l, h.window) {
			used += h.tokens
		}
	}
	return used
}

func (tw *logTwin) step(l *Limit, now, cost int64) verdict {
	tw.at(l, now)
	used := tw.used(l)
	switch {
	case cost < 0:
		tw.refund(l, -cost)
	case cost == 0:
	case used+cost <= l.Limit:
		tw.hits = append(tw.hits, hit{tw.now, cost})
	default:
		return verdict{remaining: max(0, l.Limit-used)}
	}
	return verdict{allowed: true, remaining: max(0, l.Limit-tw.used(l))}
}

func (tw *logTwin) refund(l *Limit, tokens int64) {
	for i := len(tw.hits) - 1; i >= 0; i-- {
		if h := &tw.hits[i]; tw.counts(l, h.window) {
			n := min(tokens, h.tokens)
			h.tokens -= n
			tokens -= n
		}
	}
}

// giveBack takes from those of the same instant, or sub-window.
func (tw *logTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	tw.at(l, now)
	for i := range tw.hits {
		h := &tw.hits[i]
		same := h.window == takenAt
		if l.Algorithm.HasBuckets() {
			same = bucketOf(l, h.window) == bucketOf(l, takenAt)
		}
		if same && tw.counts(l, h.window) {
			n := min(tokens, h.tokens)
			h.tokens -= n
			tokens -= n
		}
	}
}
