package algorithms

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// What counts have no room for is above every limit: they deny, say exactly for how long,
// and come back.
func TestFullCountsStep(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		if rapid.Bool().Draw(t, "at the end of time") {
			now = math.MaxInt64 - rapid.Int64Range(0, 2*l.Length()).Draw(t, "before it")
		}
		c := drawCount(t, l, now, MaxCost)
		now = latest(l, now, c)
		c.charge(l, now, now, MaxCost)
		for range 40 { // it doubles
			c.merge(l, c, now)
		}
		if d := c.look(l, now, 1); d.Allowed || d.At != now || d.Remaining != 0 {
			t.Fatalf("full, and yet %+v", d)
		}
		for range 10 {
			now = max(0, now+drawMoveBefore(t, l, now))
			if rapid.Bool().Draw(t, "charge") {
				c.charge(l, now, now, rapid.Int64Range(0, MaxCost).Draw(t, "tokens"))
			}
			cost := drawCost(t, l)
			before := c.clone()
			d := c.step(l, now, cost)
			checkInstants(t, l, before, c, d, cost)
			if c.merge(l, before, now); !noMore(c.look(l, now, 1), before.look(l, now, 1)) {
				t.Fatalf("%+v allows more than %+v", c, before)
			}
		}
	})
}

// drawMoveBefore is drawMove up to the end of time.
func drawMoveBefore(t *rapid.T, l *Limit, now int64) int64 {
	return min(drawMove(t, l), math.MaxInt64-now)
}

// As full as can be, for any window: the whole limit has room when all has drained.
func TestFullMeter(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA, LeakyBucket} {
		for _, window := range []int64{int64(MinWindow), 1<<33 - 1, 1 << 33, 1<<54 - 1, 1 << 54, int64(MaxWindow)} {
			for _, now := range []int64{0, 1, 1<<62 + 1<<22 - 1} {
				l := &Limit{Algorithm: a, Limit: MaxLimit, Window: window}
				size := int64(1) << grain(window)
				s := Charge(l, State{}, now, now, MaxCost)
				s = Merge(l, s, s, now)
				if again := Merge(l, s, s, now); again != s {
					t.Errorf("%v %d: %x became %x", a, window, s, again)
				}
				_, d := Step(l, s, now, MaxLimit)
				// All of it, and what the rest of the grain drains.
				if want := now - now%size + window + size; d.Allowed || d.At != now || d.RetryAt != want {
					t.Errorf("%v %d: retry at %d, want %d", a, window, d.RetryAt, want)
				}
			}
		}
	}
}

// Two full logs are more than one can hold, and yet decide as an unbounded one does.
func TestMergeOfFullLogs(t *testing.T) {
	const n = MaxLog
	l := &Limit{Algorithm: SlidingWindowLog, Limit: n, Window: minute}
	var x, y Long
	var tw logTwin
	for i := range int64(n) {
		for j, log := range []*Long{&x, &y} {
			now := minute + 2*i*1000 + int64(j)*777
			log.Step(l, now, 1, true)
			tw.hits = append(tw.hits, hit{now, 1})
		}
	}
	for _, log := range []*Long{&x, &y} {
		if log.count != n {
			t.Fatalf("%d entries", log.count)
		}
	}
	x.Merge(l, &y, minute)
	x.Charge(l, minute, minute, 5) // long before the oldest that is kept
	tw.add(hit{minute, 5})
	if x.count != n || x.used() != 2*n+5 || x.Bytes() > MaxLongBytes {
		t.Fatalf("%d entries of %d tokens in %d bytes", x.count, x.used(), x.Bytes())
	}
	lower := *l
	lower.Limit = n / 3
	for i := range int64(50) {
		now := 2*minute + i*2*n*1000/45 // until all are over
		for _, l := range []*Limit{l, &lower} {
			for _, cost := range []int64{0, 1, l.Limit / 2, l.Limit, -n - n/2} {
				got := (&counter{long: x}).clone().step(l, now, cost)
				unbounded := tw
				unbounded.hits = slices.Clone(tw.hits)
				want := unbounded.step(l, now, cost)
				if cost >= 0 && verdictOf(got) != want || got.Remaining > want.remaining {
					t.Fatalf("at %d cost %d of %d: %+v, an unbounded log says %+v", now, cost, l.Limit, got, want)
				}
			}
		}
	}
}
