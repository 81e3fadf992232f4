package algorithms

import (
	"cmp"
	"math/big"
	"slices"
)

// mergingTwin is a twin that may take over what another one of its kind has counted, and
// tokens that there was no room for.
type mergingTwin interface {
	twin
	merge(l *Limit, other twin, now int64)
	charge(l *Limit, now, takenAt, tokens int64)
}

func newMergingTwin(a Algorithm) mergingTwin { return newTwin(a).(mergingTwin) }

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

func (tw *bucketTwin) merge(l *Limit, other twin, now int64) {
	o, ok := other.(*bucketTwin)
	if !ok {
		o = &other.(*queueTwin).bucketTwin
	}
	now = max(now, tw.since, o.since)
	o.update(l, now, func(of *big.Rat) *big.Rat {
		of = new(big.Rat).Set(of)
		tw.update(l, now, func(missing *big.Rat) *big.Rat { return missing.Add(missing, of) })
		return of
	})
}

func (tw *bucketTwin) charge(l *Limit, now, takenAt, tokens int64) {
	now = max(now, takenAt, tw.since)
	tw.update(l, now, func(missing *big.Rat) *big.Rat {
		return missing.Add(missing, positive(new(big.Rat).Sub(rat(tokens), refilled(l, now-takenAt))))
	})
}

func (tw *scheduleTwin) merge(l *Limit, other twin, now int64) {
	o := other.(*scheduleTwin)
	now = max(now, tw.since, o.since)
	_, of := o.at(l, now)
	_, ahead := tw.at(l, now)
	tw.book(l, now, ahead.Add(ahead, of))
}

func (tw *scheduleTwin) charge(l *Limit, now, takenAt, tokens int64) {
	at, ahead := tw.at(l, max(now, takenAt))
	left := new(big.Rat).Mul(tw.increment, rat(tokens))
	tw.book(l, at, ahead.Add(ahead, positive(left.Sub(left, rat(at-takenAt)))))
}
