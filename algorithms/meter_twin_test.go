package algorithms

import (
	"math"
	"math/big"
)

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

func (tw *bucketTwin) step(l *Limit, now, cost int64) (v verdict) {
	tw.update(l, now, func(missing *big.Rat) *big.Rat {
		after := positive(new(big.Rat).Add(missing, rat(cost)))
		if v.allowed = cost <= 0; !v.allowed && cost <= l.Capacity() {
			v.delay = duration(l, positive(new(big.Rat).Sub(after, rat(l.Capacity()))))
			v.allowed = v.delay <= l.MaxDelay
		}
		if !v.allowed {
			after, v.delay = missing, 0
		}
		v.remaining = max(0, l.Capacity()-ceil(after))
		return after
	})
	return v
}

// duration is how long it takes to refill tokens.
func duration(l *Limit, tokens *big.Rat) int64 {
	exact := new(big.Rat).Quo(tokens, refilled(l, 1))
	if exact.Cmp(rat(math.MaxInt64)) > 0 {
		return math.MaxInt64
	}
	return ceil(exact)
}

func (tw *bucketTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	now = max(now, tw.since)
	tw.update(l, now, func(missing *big.Rat) *big.Rat {
		left := positive(new(big.Rat).Sub(rat(tokens), refilled(l, max(0, now-takenAt))))
		return positive(new(big.Rat).Sub(missing, left))
	})
}

// queueTwin is the twin of leaky_bucket: what misses in the bucket is what is in
// the queue.
type queueTwin struct{ bucketTwin }

func (tw *queueTwin) step(l *Limit, now, cost int64) (v verdict) {
	tw.update(l, now, func(queued *big.Rat) *big.Rat {
		after := positive(new(big.Rat).Add(queued, rat(cost)))
		if v.allowed = cost <= 0; !v.allowed && after.Cmp(rat(l.Capacity())) <= 0 {
			v.delay = duration(l, queued)
			v.allowed = l.MaxDelay == 0 || v.delay <= l.MaxDelay
		}
		if !v.allowed {
			after, v.delay = queued, 0
		}
		v.remaining = max(0, l.Capacity()-ceil(after))
		if l.MaxDelay > 0 && l.Limit > 0 {
			late := new(big.Rat).Mul(rat(l.MaxDelay), big.NewRat(l.Limit, l.Window)) // what goes within MaxDelay
			ahead := positive(new(big.Rat).Sub(late, after))
			whole := new(big.Int).Quo(ahead.Num(), ahead.Denom())
			if after.Cmp(late) > 0 {
				v.remaining = 0
			} else if whole.Cmp(big.NewInt(v.remaining)) < 0 {
				v.remaining = whole.Int64() + 1
			}
		}
		return after
	})
	return v
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

func (tw *scheduleTwin) step(l *Limit, now, cost int64) (v verdict) {
	at, ahead := tw.at(l, now)
	after := new(big.Rat).Mul(tw.increment, rat(cost))
	after = positive(after.Add(after, ahead))
	most := new(big.Rat).Mul(tw.increment, rat(l.Capacity()))
	if v.allowed = cost <= 0; !v.allowed && cost <= l.Capacity() {
		wait := positive(new(big.Rat).Sub(after, most))
		if v.allowed = wait.Cmp(rat(l.MaxDelay)) <= 0; v.allowed {
			v.delay = ceil(wait)
		}
	}
	if !v.allowed {
		after = ahead
	}
	tw.book(l, at, after)
	free := positive(most.Sub(most, after))
	free.Quo(free, tw.increment)
	v.remaining = new(big.Int).Quo(free.Num(), free.Denom()).Int64()
	return v
}

func (tw *scheduleTwin) giveBack(l *Limit, now, takenAt, tokens int64) {
	at, ahead := tw.at(l, now)
	left := new(big.Rat).Mul(tw.increment, rat(tokens))
	left = positive(left.Sub(left, rat(max(0, at-takenAt))))
	tw.book(l, at, positive(ahead.Sub(ahead, left)))
}
