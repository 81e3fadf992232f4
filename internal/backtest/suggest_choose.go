package backtest

import (
	"math"
	"slices"

	"github.com/weirlimit/weir/algorithms"
)

// horizon is how many windows a limit is judged over: the tighter one of two lets a caller have less in them. A bucket
// that is empty must be full again within them.
const horizon = 10

// enoughWindows is how many windows a log has to cover for a token bucket to be told. In fewer, no key shows what it needs
// for so long, and a slow bucket with a large burst looks tighter than it may be.
const enoughWindows = 2 * horizon

// tighter is how much less a token bucket has to allow than the sliding window to be chosen, as a share.
const tighter = 0.75

// confidence of a limit that is found with a sample: it touches more than it may in one of 100 samples.
const confidence = 0.99

// candidate is a limit that touches few enough of the well-behaved keys of the log.
type candidate struct {
	measure int
	need    int64 // of limit or burst, without headroom
	most    int64 // tokens in horizon windows, without headroom
	valid   bool
}

// chooser finds the limits of one rule.
type chooser struct {
	measures []measure
	well     []*keyStats
	covered  int64 // nanoseconds from the first line of the log to the last one
	sampled  bool
	touch    float64 // as a share
	headroom float64 // as a share
	needs    []int64 // used again
}

// touchable returns how many of the well-behaved keys each of n limits may touch, and whether it is certain, or as sure
// as confidence says, that the limits together touch no more than the share.
func (c *chooser) touchable(limits int) (keys int, sure bool) {
	if c.sampled { // each of the limits is chosen of several
		tried := float64(limits * (len(rates) + 1))
		return sampledTouch(len(c.well), c.touch/float64(limits), (1-confidence)/tried)
	}
	return int(math.Floor(c.touch*float64(len(c.well))+1e-9)) / limits, true
}

// sampledTouch returns how many of n keys of a sample may be touched, so that the share of all keys is at most touch
// except with a probability of risk: the most k with P(Binomial(n, touch) <= k) <= risk. This is S. Wilks' bound that
// holds for any distribution, "Determination of Sample Sizes for Setting Tolerance Limits" (1941). Not even 0 may be
// sure.
func sampledTouch(n int, touch, risk float64) (k int, sure bool) {
	if touch <= 0 {
		return 0, false
	}
	log := float64(n) * math.Log1p(-touch) // of the probability of k
	odds := math.Log(touch) - math.Log1p(-touch)
	sum := 0.0
	for ; k < n; k++ {
		if sum += math.Exp(log); sum > risk {
			break
		}
		log += math.Log(float64(n-k)/float64(k+1)) + odds
	}
	return max(0, k-1), k > 0
}

// tells reports whether the log is long enough for a limit of a window: a log of one hour or one day may end a little
// before its window does.
func (c *chooser) tells(window int64) bool { return c.covered >= window-window/20 }

// tellsBucket reports whether the log is long enough for a token bucket.
func (c *chooser) tellsBucket(window int64) bool { return c.covered/enoughWindows >= window }

// need returns what no more than touched keys are above, of a measure.
func (c *chooser) need(measure, touched int) int64 {
	c.needs = c.needs[:0]
	for _, k := range c.well {
		c.needs = append(c.needs, k.measured[measure].need)
	}
	slices.Sort(c.needs)
	return c.needs[max(0, len(c.needs)-1-touched)]
}

// sliding returns the sliding window of a length.
func (c *chooser) sliding(window int64, touched int) candidate {
	for i, m := range c.measures {
		if m.rate == 0 && m.limit.Window == window {
			need := c.need(i, touched)
			return candidate{measure: i, need: need, most: horizon * need, valid: need <= algorithms.MaxLimit}
		}
	}
	return candidate{}
}

// bucket returns the token bucket whose rate and burst together allow least. It is not valid if the log is too short.
func (c *chooser) bucket(window int64, touched int) (best candidate) {
	if !c.tellsBucket(window) {
		return candidate{}
	}
	for i, m := range c.measures {
		if m.rate == 0 || m.limit.Window != window {
			continue
		}
		burst := c.need(i, touched)
		is := candidate{measure: i, need: burst, most: burst + horizon*m.rate, valid: burst <= min(algorithms.MaxLimit, horizon*m.rate)}
		if is.valid && (!best.valid || is.most < best.most) {
			best = is
		}
	}
	return best
}

// choose returns the limit of a window, and the one that it was preferred to, which may not be valid.
func (c *chooser) choose(window int64, touched int, only algorithms.Algorithm) (one, other candidate) {
	sliding, bucket := c.sliding(window, touched), c.bucket(window, touched)
	switch {
	case only == algorithms.SlidingWindow:
		return sliding, candidate{}
	case only == algorithms.TokenBucket:
		return bucket, candidate{}
	case bucket.valid && (!sliding.valid || float64(bucket.most) <= tighter*float64(sliding.most)):
		return bucket, sliding
	}
	return sliding, bucket
}

// limit is a candidate with headroom.
func (c *chooser) limit(is candidate) algorithms.Limit {
	m := &c.measures[is.measure]
	if m.rate == 0 {
		return algorithms.Limit{Algorithm: algorithms.SlidingWindow, Window: m.limit.Window, Limit: c.raise(is.need)}
	}
	return algorithms.Limit{Algorithm: algorithms.TokenBucket, Window: m.limit.Window, Limit: c.raise(m.rate), Burst: c.raise(is.need)}
}

// raise adds the headroom.
func (c *chooser) raise(tokens int64) int64 {
	return max(tokens, min(algorithms.MaxLimit, int64(math.Ceil(float64(tokens)*(1+c.headroom)-1e-6))))
}

// above returns the keys that a limit of so many tokens would touch, those with the highest need first.
func above(keys []*keyStats, measure int, tokens int64) (touched []*keyStats) {
	for _, k := range keys {
		if k.measured[measure].need > tokens {
			touched = append(touched, k)
		}
	}
	slices.SortStableFunc(touched, func(a, b *keyStats) int {
		return int(b.measured[measure].need - a.measured[measure].need)
	})
	return touched
}
