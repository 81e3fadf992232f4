package algorithms

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Two counts of 3 and 4 tokens of 5 are one of 7.
func TestMergeTimeline(t *testing.T) {
	for _, tc := range []struct {
		algorithm    Algorithm
		a, b         int64 // when 3 were taken, and when 4 were
		now, retryAt int64 // when two more are asked for, and when they have room
	}{
		{FixedWindow, at(1, 0), at(1, 50), at(1, 60), at(2, 0)},
		{FixedWindow, at(1, 50), at(2, 0), at(2, 10), at(3, 0)},                 // the 3 are over
		{SlidingWindow, at(1, 0), at(1, 50), at(1, 60), at(2, 0) + 25714285715}, // 7 fade to less than 4
		{SlidingWindow, at(1, 50), at(2, 0), at(2, 10), at(3, 0) + 1},           // the 3 fade within this window, the 4 in the next
		{SlidingWindowLog, at(1, 0), at(1, 50), at(1, 60), at(2, 50)},
		{SlidingWindowLog, at(1, 50), at(1, 0), at(1, 60), at(2, 0)},
		{SlidingWindowBuckets, at(1, 0), at(1, 50), at(1, 60), at(2, 50) + int64(time.Second)},
		{TokenBucket, at(1, 0), at(1, 0), at(1, 0), at(1, 80)},
		{TokenBucket, at(1, 0), at(1, 0), at(1, 20), at(1, 80)}, // drained once, as one
		{TokenBucket, at(1, 0), at(1, 10), at(1, 20), at(1, 80)},
		{TokenBucket, at(1, 10), at(1, 0), at(1, 20), at(1, 80)},
		{GCRA, at(1, 0), at(1, 10), at(1, 20), at(1, 80)},
		{LeakyBucket, at(1, 0), at(1, 10), at(1, 20), at(1, 80)},
	} {
		l := &Limit{Algorithm: tc.algorithm, Limit: 5, Window: minute}
		var a, b counter
		a.step(l, tc.a, 3)
		b.step(l, tc.b, 4)
		if d := merged(l, &a, &b, tc.now).look(l, tc.now, 2); d.Allowed || d.RetryAt != tc.retryAt {
			t.Errorf("%+v: %+v", tc, d)
		}
	}
}

// A limit under which 64 steps do not fill what a counter has room for.
func drawModestLimit(t *rapid.T, a Algorithm) *Limit {
	l := drawLimit(t, a)
	l.Limit, l.Burst = min(l.Limit, MaxLimit/64), min(l.Burst, MaxLimit/64)
	l.MaxDelay = min(l.MaxDelay, l.Window)
	return l
}

// drawOther returns another limit of the same counter.
func drawOther(t *rapid.T, l *Limit) *Limit {
	other := drawModestLimit(t, l.Algorithm)
	other.Window, other.Calendar = l.Window, l.Calendar
	other.MaxDelay = min(other.MaxDelay, l.Window)
	if l.Algorithm == GCRA { // the twin's schedule cannot stop and go on
		l.Limit, other.Limit = max(1, l.Limit), max(1, other.Limit)
	}
	return other
}

// Counts that are taken apart, merged and charged in any order are what the twins say that
// they are: all tokens of both, each in its window or at its instant, or exact levels added.
func TestMergeAgainstTwin(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawModestLimit(t, a)
		limits := []*Limit{l, l, drawOther(t, l)}
		counters := [3]*counter{{}, {}, {}}
		twins := [3]twin{newTwin(a), newTwin(a), newTwin(a)}
		now := drawStart(t, l)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l = rapid.SampledFrom(limits).Draw(t, "limit of the step")
			i := rapid.IntRange(0, 2).Draw(t, "counter")
			c, tw := counters[i], twins[i]
			now = max(0, now+drawMove(t, l))
			switch rapid.IntRange(0, 5).Draw(t, "action") {
			case 0:
				from := (i + rapid.IntRange(1, 2).Draw(t, "from")) % 3
				c.merge(l, counters[from], now)
				tw.merge(l, twins[from], now)
				counters[from], twins[from] = &counter{}, newTwin(a)
			case 1:
				takenAt := max(0, now+drawMove(t, l))
				tokens := rapid.Int64Range(0, l.Capacity()).Draw(t, "tokens")
				c.charge(l, now, takenAt, tokens)
				tw.charge(l, now, takenAt, tokens)
			}
			cost := drawCost(t, l)
			before := c.clone()
			d := c.step(l, now, cost)
			if want := tw.step(l, now, cost); verdictOf(d) != want {
				t.Fatalf("at %d cost %d: %+v, the twin says %+v", now, cost, d, want)
			}
			checkInstants(t, l, before, c, d, cost)
		}
	})
}

// drawCount returns a counter that was used around start by a clock that sometimes goes
// backwards, and charged beyond its limit, with most at once.
func drawCount(t *rapid.T, l *Limit, start, most int64) *counter {
	var c counter
	now := start
	for range rapid.IntRange(0, 6).Draw(t, "takes") {
		now = max(0, now+drawMove(t, l))
		if cost := drawCost(t, l); cost > 0 && rapid.Bool().Draw(t, "charge") {
			c.charge(l, now, max(0, now+drawMove(t, l)), min(cost, most))
		} else {
			c.step(l, now, cost)
		}
	}
	return &c
}

// latest is an instant that none of the counters is beyond, as far as steps tell.
func latest(l *Limit, now int64, counters ...*counter) int64 {
	for _, c := range counters {
		now = max(now, c.clone().look(l, now, 0).At)
	}
	return now
}

// same fails unless a and b remember the same.
func same(t *rapid.T, law string, a, b *counter) {
	if !a.equal(b) {
		t.Fatalf("%s: %+v %v and %+v %v", law, a, a.hits(), b, b.hits())
	}
}

func TestMergeLaws(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		start := drawStart(t, l)
		x, y, z := drawCount(t, l, start, MaxCost), drawCount(t, l, start, MaxCost), drawCount(t, l, start, MaxCost)
		now := max(0, start+drawMove(t, l))
		same(t, "commutative", merged(l, x, y, now), merged(l, y, x, now))
		same(t, "nothing on the right", rolled(l, merged(l, x, &counter{}, now), now), rolled(l, x, now))
		same(t, "nothing on the left", rolled(l, merged(l, &counter{}, x, now), now), rolled(l, x, now))
		if !a.Drains() { // three meters are merged in the order in which they were in use
			same(t, "associative", merged(l, merged(l, x, y, now), z, now), merged(l, x, merged(l, y, z, now), now))
		}
	})
}

// rolled is c at now.
func rolled(l *Limit, c *counter, now int64) *counter {
	c = c.clone()
	c.step(l, now, 0)
	return c
}

// What two counts allow together each of them does alone, and the more there is in one,
// the less they allow.
func TestMergeNeverAdmitsMore(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		start := drawStart(t, l)
		written := drawLimit(t, a) // the limit may have changed since
		written.Window, written.Calendar, written.Buckets, written.MaxDelay = l.Window, l.Calendar, l.Buckets, 0
		x, y := drawCount(t, written, start, MaxCost), drawCount(t, l, start, MaxCost)
		now := latest(l, max(0, start+drawMove(t, l)), x, y)
		both, more := merged(l, x, y, now), x.clone()
		if a.Drains() { // a meter forgets when it was in use before it was empty
			more = both.clone()
		}
		more.charge(l, now, min(now, max(0, now+drawMove(t, l))), rapid.Int64Range(0, MaxCost).Draw(t, "more"))
		if !a.Drains() {
			more.merge(l, y, now)
		}
		now = addInstant(latest(l, now, more), rapid.Int64Range(0, 2*l.Length()).Draw(t, "later"))
		cost := drawCost(t, l)
		d, withMore := both.look(l, now, cost), more.look(l, now, cost)
		for _, c := range []*counter{x, y} {
			if alone := c.look(l, now, cost); !noMore(d, alone) {
				t.Fatalf("cost %d: both %+v, alone %+v", cost, d, alone)
			}
		}
		if !noMore(withMore, d) {
			t.Fatalf("cost %d: more %+v, less %+v", cost, withMore, d)
		}
	})
}

// noMore reports whether d lets no more pass than other does.
func noMore(d, other Decision) bool {
	if d.Allowed != other.Allowed { // what is left then says nothing
		return other.Allowed
	}
	return d.Remaining <= other.Remaining && d.RetryAt >= other.RetryAt && d.ResetAt >= other.ResetAt
}

func TestChargeIsMerge(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		start := drawStart(t, l)
		x := drawCount(t, l, start, MaxCost)
		now, takenAt := max(0, start+drawMove(t, l)), max(0, start+drawMove(t, l))
		tokens := rapid.Int64Range(0, MaxCost).Draw(t, "tokens")
		var one counter
		one.charge(l, now, takenAt, tokens)
		charged := x.clone()
		charged.charge(l, now, takenAt, tokens)
		now = max(now, takenAt)
		if two := merged(l, x, &one, now); a.Drains() { // merged as of the beginning of a grain
			slack := int64(1) << grain(l.Window)
			if c, m := charged.look(l, now, 0).ResetAt, two.look(l, now, 0).ResetAt; c > m || addInstant(c, slack) < m {
				t.Fatalf("charged: empty at %d, merged: at %d", c, m)
			}
		} else {
			same(t, "charge is merge", charged, two)
		}
	})
}

// What one meter counts in turns with others, each after the one before has ended, they count together, as long as
// none of them was empty in between. So a copy may deliver what it granted in as many parts as it likes.
func TestMetersInTurnsLoseNothing(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA, LeakyBucket} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawModestLimit(t, a)
				l.Limit = max(1, l.Limit)
				now := drawStart(t, l) / 2
				var sum, part, one counter
				for range rapid.IntRange(1, 30).Draw(t, "charges") {
					tokens := rapid.Int64Range(1, l.Capacity()).Draw(t, "tokens")
					if rapid.Bool().Draw(t, "a new part") {
						sum.merge(l, &part, now)
						part = counter{}
					}
					part.charge(l, now, now, tokens)
					one.charge(l, now, now, tokens)
					now += rapid.Int64Range(0, max(0, l.Window/l.Limit-1)).Draw(t, "later") // before a token has drained
				}
				sum.merge(l, &part, now)
				slack := int64(30) << grain(l.Window)
				if together, alone := sum.look(l, now, 0).ResetAt, one.look(l, now, 0).ResetAt; together < alone || together > addInstant(alone, slack) {
					t.Fatalf("together empty at %d, one would be at %d", together, alone)
				}
			})
		})
	}
}

// Parts of a meter that is never empty add up to it, although each of them may have drained by itself. So may those that a copy delivers.
func TestPartsOfAMeterInUse(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA, LeakyBucket} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawModestLimit(t, a)
				l.Limit = max(1, l.Limit)
				now := drawStart(t, l) / 2
				var sum, part, one counter
				first := rapid.Int64Range(1, l.Capacity()).Draw(t, "first")
				sum.charge(l, now, now, first)
				one.charge(l, now, now, first)
				charges := rapid.IntRange(1, 30).Draw(t, "charges")
				for range charges {
					now += rapid.Int64Range(0, max(0, one.look(l, now, 0).ResetAt-now-1)).Draw(t, "later") // before it is empty
					if rapid.Bool().Draw(t, "a new part") {
						sum.merge(l, &part, now)
						part = counter{}
					}
					tokens := rapid.Int64Range(1, l.Capacity()).Draw(t, "tokens")
					part.chargeInUse(l, now, now, tokens)
					one.charge(l, now, now, tokens)
				}
				sum.merge(l, &part, now)
				slack := int64(2*charges+2) << grain(l.Window)
				together, alone := sum.look(l, now, 0).ResetAt, one.look(l, now, 0).ResetAt
				if together < alone-slack || together > addInstant(alone, slack) {
					t.Fatalf("together empty at %d, one would be at %d", together, alone)
				}
			})
		})
	}
}

// Where a step has room, a charge at its instant is that step.
func TestChargeIsStep(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		start := drawStart(t, l)
		stepped := drawCount(t, l, start, MaxCost)
		charged := stepped.clone()
		now := max(0, start+drawMove(t, l))
		cost := rapid.Int64Range(1, max(1, l.Capacity())).Draw(t, "cost")
		if d := stepped.step(l, now, cost); d.Allowed {
			charged.charge(l, now, d.At, cost)
			same(t, "charge is step", rolled(l, charged, d.At), rolled(l, stepped, d.At))
		}
	})
}

func TestReturnUndoesCharge(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawModestLimit(t, a)
		start := drawStart(t, l)
		x := drawCount(t, l, start, MaxLimit/64)
		now, takenAt := max(0, start+drawMove(t, l)), max(0, start+drawMove(t, l))
		tokens := rapid.Int64Range(0, MaxLimit/64).Draw(t, "tokens")
		charged := x.clone()
		charged.charge(l, now, takenAt, tokens)
		if now = max(now, takenAt); a.Drains() {
			now = takenAt // later, Return leaves what would have drained of the tokens
		}
		charged.giveBack(l, now, takenAt, tokens)
		same(t, "returned", rolled(l, charged, now), rolled(l, x, now))
	})
}

// While two meters are in use both drain, and that much is forgiven, no more: one that had
// taken all tokens would be empty later by as long. Up to a grain, none is empty later than that one.
func TestSeparateMetersForgiveDoubleDrain(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA, LeakyBucket} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawModestLimit(t, a)
				l.Limit = max(1, l.Limit)
				now := drawStart(t, l) / 2
				var apart [2]counter
				var one counter
				var both int64 // for how long both were in use
				for range rapid.IntRange(1, 20).Draw(t, "steps") {
					tokens := rapid.Int64Range(0, l.Capacity()).Draw(t, "tokens")
					apart[rapid.IntRange(0, 1).Draw(t, "which")].charge(l, now, now, tokens)
					one.charge(l, now, now, tokens)
					later := rapid.Int64Range(0, l.Window).Draw(t, "later")
					both += min(later, apart[0].look(l, now, 0).ResetAt-now, apart[1].look(l, now, 0).ResetAt-now)
					now += later
				}
				sum := merged(l, &apart[0], &apart[1], now).look(l, now, 0).ResetAt
				if whole := one.look(l, now, 0).ResetAt; addInstant(whole, 1<<grain(l.Window)) < sum || whole > addInstant(sum, both) {
					t.Fatalf("empty at %d, one at %d, in use at once for %d", sum, whole, both)
				}
			})
		})
	}
}

// Nodes whose time zones differ do not agree on a window: the one that ends later counts.
func TestMergeOfOddWindows(t *testing.T) {
	l := &Limit{Algorithm: FixedWindow, Limit: 9, Calendar: calendar(t, "hour/UTC")}
	hour := int64(time.Hour)
	a := State{A: uint64(10 * hour), B: 3600<<32 | 3}
	b := State{A: uint64(10*hour + hour/2), B: 3600<<32 | 4}
	want := State{A: uint64(10*hour + hour/2), B: 3600<<32 | 7}
	if x, y := Merge(l, a, b, 10*hour), Merge(l, b, a, 10*hour); x != want || y != want {
		t.Errorf("%+v, %+v, want %+v", x, y, want)
	}
}
