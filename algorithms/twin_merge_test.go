package algorithms

import (
	"cmp"
	"math/big"
	"slices"
)

func (tw *windowTwin) merge(l *Limit, other twin, now int64) {
	o := other.(*windowTwin)
	tw.hits = append(tw.hits, o.hits...)
	tw.latest = max(tw.latest, o.latest)
	tw.used(l, now)
}

func (tw *windowTwin) charge(l *Limit, now, takenAt, tokens int64) {
	tw.used(l, max(now, takenAt))
	window := takenAt / max(1, l.Window)
	if l.Calendar != nil {
		window, _ = l.Calendar.window(takenAt)
	}
	tw.hits = append(tw.hits, hit{window, tokens})
}

func (tw *logTwin) merge(l *Limit, other twin, now int64) {
	o := other.(*logTwin)
	now = max(now, tw.now, o.now)
	tw.at(l, now)
	o.at(l, now)
	tw.add(o.hits...)
}

func (tw *logTwin) charge(l *Limit, now, takenAt, tokens int64) {
	tw.at(l, max(now, takenAt))
	tw.add(hit{takenAt, tokens})
}

func (tw *logTwin) add(hits ...hit) {
	tw.hits = append(tw.hits, hits...)
	slices.SortStableFunc(tw.hits, func(a, b hit) int { return cmp.Compare(a.window, b.window) })
}

func (tw *bucketTwin) merge(l *Limit, other twin, _ int64) {
	o, ok := other.(*bucketTwin)
	if !ok {
		o = &other.(*queueTwin).bucketTwin
	}
	now := max(tw.since, o.since)
	o.update(l, now, func(of *big.Rat) *big.Rat {
		of = new(big.Rat).Set(of)
		tw.update(l, now, func(missing *big.Rat) *big.Rat { return missing.Add(missing, of) })
		return of
	})
}

func (tw *bucketTwin) charge(l *Limit, _, takenAt, tokens int64) {
	more := positive(new(big.Rat).Sub(rat(tokens), refilled(l, max(0, tw.since-takenAt))))
	at := max(takenAt, tw.since)
	if tw.missing.Cmp(refilled(l, at-tw.since)) > 0 {
		at = tw.since
	}
	tw.update(l, at, func(missing *big.Rat) *big.Rat { return missing.Add(missing, more) })
}

func (tw *scheduleTwin) merge(l *Limit, other twin, _ int64) {
	o := other.(*scheduleTwin)
	now := max(tw.since, o.since)
	_, of := o.at(l, now)
	_, ahead := tw.at(l, now)
	tw.book(l, now, ahead.Add(ahead, of))
}

func (tw *scheduleTwin) charge(l *Limit, _, takenAt, tokens int64) {
	at, ahead := tw.at(l, tw.since)
	left := new(big.Rat).Mul(tw.increment, rat(tokens))
	left = positive(left.Sub(left, rat(max(0, at-takenAt))))
	if ahead.Cmp(rat(takenAt-at)) <= 0 {
		at, ahead = max(at, takenAt), new(big.Rat)
	}
	tw.book(l, at, left.Add(left, ahead))
}
