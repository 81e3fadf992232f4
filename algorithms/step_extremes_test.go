package algorithms

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// The corners of limit x window, with costs at the bounds, at both ends of time;
// and windows that fill or just do not fill the bits that the meter gives them.
func TestNoOverflowAtTheExtremes(t *testing.T) {
	for _, name := range Names() {
		a, _ := Parse(name)
		most := a.MostTokens()
		for _, limit := range []int64{1, most} {
			for _, window := range []int64{int64(MinWindow), 1<<33 - 1, 1 << 33, 1<<54 - 1, 1 << 54, int64(MaxWindow)} {
				l := &Limit{Algorithm: a, Limit: limit, Window: window}
				t.Run(fmt.Sprintf("%s/%d/%d", name, limit, window), func(t *testing.T) { l.extremes(t) })
			}
		}
	}
}

func (l *Limit) extremes(t *testing.T) {
	for _, now := range []int64{0, 1, math.MaxInt64 - 1} {
		var c counter
		d := c.step(l, now, l.Limit)
		if want := (Decision{Allowed: true, At: now, RetryAt: now, ResetAt: d.ResetAt}); d != want || d.ResetAt <= now {
			t.Errorf("all at %d: %+v", now, d)
		}
		if d = c.look(l, now, l.Limit); d.Allowed || d.RetryAt <= now || d.Remaining != 0 {
			t.Errorf("again at %d: %+v", now, d)
		}
		if d = c.look(l, now, MaxCost); d.Allowed || d.RetryAt <= now || d.Remaining != 0 {
			t.Errorf("the highest cost at %d: %+v", now, d)
		}
		if d = c.clone().look(l, math.MaxInt64, l.Limit); d.At != math.MaxInt64 || d.Allowed != (now < 2) {
			t.Errorf("used at %d, at the end of time: %+v", now, d)
		}
		back := c.clone()
		d = back.step(l, now, -MaxCost)
		if want := (Decision{Allowed: true, At: now, RetryAt: now, ResetAt: now, Remaining: l.Limit}); d != want {
			t.Errorf("all back at %d: %+v", now, d)
		}
		if d = back.step(l, 0, l.Limit); !d.Allowed {
			t.Errorf("back to the beginning from %d: %+v", now, d)
		}
		if c.giveBack(l, now, now, l.Limit); !c.look(l, now, l.Limit).Allowed {
			t.Errorf("returned at %d: %+v", now, c)
		}
	}
}

// A peer may say that one counter belongs to two limits. The result has no meaning, but it must not bring
// the node down.
func TestForeignStatesDoNotPanic(t *testing.T) {
	const now = 1_800_000_000 * int64(time.Second)
	for a := range Algorithm(len(registered)) {
		for _, window := range []int64{int64(MinWindow), int64(time.Hour), int64(MaxWindow)} {
			l := &Limit{Algorithm: a, Limit: 1000, Window: window}
			if l.Validate() != nil || a.Long() {
				continue
			}
			for shift := range 64 {
				s := State{A: math.MaxUint64 >> shift, B: math.MaxUint64}
				for _, cost := range []int64{1, 0, -1} {
					Step(l, s, now, cost)
				}
				Return(l, s, now, now, 1)
			}
		}
	}
}

// Merge and Charge take such states, too.
func TestForeignCountsDoNotPanic(t *testing.T) {
	const now = 1_800_000_000 * int64(time.Second)
	month := calendar(t, "month/Europe/Paris")
	for _, a := range []Algorithm{SlidingWindow, FixedWindow, TokenBucket, GCRA, LeakyBucket} {
		for _, window := range []int64{0, int64(MinWindow), int64(time.Hour), int64(MaxWindow)} {
			l := &Limit{Algorithm: a, Limit: 1000, Window: window}
			if window == 0 {
				l.Calendar = month
			}
			if l.Validate() != nil {
				continue
			}
			for shift := range 64 {
				s := State{A: math.MaxUint64 >> shift, B: math.MaxUint64}
				Step(l, Merge(l, s, State{}, now), now, 1)
				Step(l, Merge(l, State{A: 1 << shift, B: 5}, s, now), now, 1)
				Step(l, Charge(l, s, now, now, MaxCost), now, 1)
			}
		}
	}
}

// A debt that fills the state to the last token that Validate allows.
func TestHighestDebt(t *testing.T) {
	const half = MaxLimit / 2
	for _, a := range []Algorithm{TokenBucket, GCRA} {
		for _, window := range []int64{int64(MinWindow), 1<<33 - 1, 1 << 33, 1<<54 - 1, 1 << 54, int64(MaxWindow)} {
			for _, now := range []int64{0, 1, 1<<62 + 1} {
				l := &Limit{Algorithm: a, Limit: half, Window: window, MaxDelay: window}
				if err := l.Validate(); err != nil {
					t.Fatal(err)
				}
				var c counter
				c.step(l, now, half)
				if d := c.step(l, now, half); !d.Allowed || d.Delay != window || d.ResetAt != now+2*window {
					t.Errorf("%v %d: the debt: %+v", a, window, d)
				}
				if d := c.step(l, now, half); d.Allowed || d.RetryAt != now+window {
					t.Errorf("%v %d: more than the highest debt: %+v", a, window, d)
				}
				if d := c.look(l, now+window, half); !d.Allowed || d.Delay != window {
					t.Errorf("%v %d: when half of it is paid: %+v", a, window, d)
				}
				c.giveBack(l, now, now, half)
				if d := c.look(l, now, 1); !d.Allowed || d.Delay != (window+half-1)/half {
					t.Errorf("%v %d: returned: %+v", a, window, d)
				}
			}
		}
	}
}
