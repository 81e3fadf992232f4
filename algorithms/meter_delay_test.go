package algorithms

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A caller that cannot wait for long is allowed exactly when others would be allowed with no longer a
// delay, from the same counter; and its RetryAt says when that will be.
func TestWaitAtMost(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	let, turnedAway := 0, 0
	for range 2000 {
		l := Limit{
			Algorithm: []Algorithm{TokenBucket, GCRA, LeakyBucket}[r.IntN(3)], Limit: 1 + r.Int64N(9),
			Window: int64(time.Second), Burst: r.Int64N(9), MaxDelay: int64(r.IntN(3)) * int64(time.Second),
		}
		longest := r.Int64N(4) * int64(200*time.Millisecond)
		hasty := l.WaitAtMost(longest)
		if hasty.queues() != l.queues() {
			t.Fatalf("%+v became %+v", l, hasty)
		}
		var s State
		now := int64(1e18)
		for range 20 {
			now += r.Int64N(int64(300 * time.Millisecond))
			cost := 1 + r.Int64N(2)
			next, patient := Step(&l, s, now, cost)
			hastyNext, d := Step(&hasty, s, now, cost)
			soon := patient.Allowed && patient.Delay <= max(1, longest)
			switch {
			case d.Allowed != soon && l.queues(), d.Allowed && (d.Delay != patient.Delay || hastyNext != next):
				t.Fatalf("%+v, %v: %+v, but with patience %+v", l, time.Duration(longest), d, patient)
			case d.Allowed:
				let++
			case d.RetryAt != Never && l.queues():
				turnedAway++
				for _, at := range []struct {
					when int64
					want bool
				}{{d.RetryAt, true}, {d.RetryAt - 1, false}} {
					if _, later := Step(&hasty, s, at.when, cost); later.Allowed != at.want {
						t.Fatalf("%+v, %v: %+v, but %+v at %d", l, time.Duration(longest), d, later, at.when)
					}
				}
			}
			s = next
		}
	}
	if let < 1000 || turnedAway < 1000 {
		t.Errorf("%d let in, %d turned away: too few of either", let, turnedAway)
	}
}
