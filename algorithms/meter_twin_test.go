package algorithms

import "math/big"

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func positive(r *big.Rat) *big.Rat {
	if r.Sign() < 0 {
		return new(big.Rat)
	}
	return r
}

func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	return q.Int64() + int64(rest.Sign())
}

// whole is the beginning of the grain that now lies in.
func whole(l *Limit, now int64) int64 {
	size := int64(1)
	for l.Window/size >= 1<<33 {
		size *= 2
	}
	return now - now%size
}

// bucketTwin counts tokens: the twin of token_bucket.
type bucketTwin struct {
	missing *big.Rat // tokens, at the instant since
	since   int64    // the beginning of the grain of the last step
}

func refilled(l *Limit, length int64) *big.Rat {
	return new(big.Rat).Mul(big.NewRat(l.Limit, l.Window), rat(length))
}

// update lets f change what is missing at now.
func (tw *bucketTwin) update(l *Limit, now int64, f func(missing *big.Rat) *big.Rat) {
	now = max(now, tw.since)
	missing := f(positive(new(big.Rat).Sub(tw.missing, refilled(l, now-tw.since))))
	tw.missing, tw.since = missing, whole(l, now)
	if missing.Sign() > 0 {
		tw.missing = missing.Add(missing, refilled(l, now-tw.since))
	}
}

func (tw *bucketTwin) step(l *Limit, now, cost int64) (allowed bool, remaining int64) {
	tw.update(l, now, func(missing *big.Rat) *big.Rat {
		after := positive(new(big.Rat).Add(missing, rat(cost)))
		if allowed = cost <= 0 || after.Cmp(rat(l.Capacity())) <= 0; !allowed {
			after = missing
		}
		remaining = max(0, l.Capacity()-ceil(after))
		return after
	})
	return allowed, remaining
}

func (tw *bucketTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	now = max(now, tw.since)
	tw.update(l, now, func(missing *big.Rat) *big.Rat {
		left := positive(new(big.Rat).Sub(rat(tokens), refilled(l, max(0, now-takenAt))))
		return positive(new(big.Rat).Sub(missing, left))
	})
}

// scheduleTwin is virtual scheduling, as ITU-T I.371 has it, the twin of gcra:
// it knows nothing but when the next request ought to arrive.
type scheduleTwin struct {
	increment *big.Rat // nanoseconds per token, of the last step
	arrival   *big.Rat // the theoretical arrival time
	since     int64    // the beginning of the grain of the last step
}

// at brings the schedule to now and returns how far ahead of it arrival is. A
// limit of 0 stops the schedule: its ahead is in the increments of before.
func (tw *scheduleTwin) at(l *Limit, now int64) (at int64, ahead *big.Rat) {
	at = max(now, tw.since)
	ahead = positive(new(big.Rat).Sub(tw.arrival, rat(tw.since)))
	if tw.increment.Sign() > 0 && ahead.Sign() > 0 { // as many tokens, at the new increment
		ahead.Quo(ahead, tw.increment)
		ahead.Mul(ahead, big.NewRat(l.Window, l.Limit))
	}
	tw.increment = big.NewRat(l.Window, l.Limit)
	return at, positive(ahead.Sub(ahead, rat(at-tw.since)))
}

func (tw *scheduleTwin) book(l *Limit, at int64, ahead *big.Rat) {
	tw.since, tw.arrival = whole(l, at), rat(at)
	tw.arrival.Add(tw.arrival, ahead)
	if ahead.Sign() == 0 {
		tw.arrival = new(big.Rat)
	}
}

func (tw *scheduleTwin) step(l *Limit, now, cost int64) (allowed bool, remaining int64) {
	if l.Limit == 0 {
		return cost <= 0, 0
	}
	at, ahead := tw.at(l, now)
	after := new(big.Rat).Mul(tw.increment, rat(cost))
	after = positive(after.Add(after, ahead))
	most := new(big.Rat).Mul(tw.increment, rat(l.Capacity()))
	if allowed = cost <= 0 || after.Cmp(most) <= 0; !allowed {
		after = ahead
	}
	tw.book(l, at, after)
	free := positive(most.Sub(most, after))
	free.Quo(free, tw.increment)
	return allowed, new(big.Int).Quo(free.Num(), free.Denom()).Int64()
}

func (tw *scheduleTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	at, ahead := tw.at(l, now)
	left := new(big.Rat).Mul(tw.increment, rat(tokens))
	left = positive(left.Sub(left, rat(max(0, at-takenAt))))
	tw.book(l, at, positive(ahead.Sub(ahead, left)))
}
