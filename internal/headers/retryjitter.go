package headers

import (
	"math"
	"math/rand/v2"
	"time"
)

// MaxJitter is the most that Style.Jitter may be.
const MaxJitter = 100

// jitter returns d and a random share of it.
func (s Style) jitter(d time.Duration) time.Duration {
	most := d / 100 * time.Duration(min(s.Jitter, MaxJitter))
	if most <= 0 {
		return d
	}
	return d + min(rand.N(most+1), math.MaxInt64-d)
}
