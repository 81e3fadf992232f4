package algorithms

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// forEach runs a property for every algorithm there is.
func forEach(t *testing.T, property func(*rapid.T, Algorithm)) {
	for _, name := range Names() {
		a, _ := Parse(name)
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { property(t, a) })
		})
	}
}

func drawTokens(t *rapid.T, label string) int64 {
	return rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, MaxLimit)).Draw(t, label)
}

func drawLimit(t *rapid.T, a Algorithm) *Limit {
	l := &Limit{
		Algorithm: a,
		Limit:     drawTokens(t, "limit"),
		Window: rapid.OneOf(
			rapid.Int64Range(int64(MinWindow), int64(time.Second)),
			rapid.Int64Range(int64(MinWindow), int64(MaxWindow)),
		).Draw(t, "window"),
	}
	l.Limit = min(l.Limit, a.MostTokens())
	if a.Drains() {
		l.Burst = drawTokens(t, "burst")
		l.MaxDelay = drawDelay(t, l)
	}
	if a.HasCalendars() && rapid.Bool().Draw(t, "calendar") {
		l.Window, l.Calendar = 0, drawCalendar(t)
	}
	if a.HasBuckets() {
		l.Buckets = rapid.OneOf(rapid.Int64Range(0, 5), rapid.Int64Range(0, MaxBuckets)).Draw(t, "buckets")
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

// drawDelay returns a MaxDelay that does not book more than there may be.
func drawDelay(t *rapid.T, l *Limit) int64 {
	with := *l
	with.MaxDelay = rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(0, 2*l.Window),
		rapid.Int64Range(0, int64(MaxWindow)),
	).Draw(t, "max delay")
	if with.MaxDelay = min(with.MaxDelay, int64(MaxWindow)); with.Validate() != nil {
		return 0
	}
	return with.MaxDelay
}

func drawCalendar(t *rapid.T) *Calendar {
	u := rapid.SampledFrom(calendarUnits).Draw(t, "unit")
	zone := rapid.SampledFrom(oddZones).Draw(t, "zone")
	c, err := NewCalendar(u.name, zone, rapid.SampledFrom([]int64{0, u.anchors}).Draw(t, "anchor"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// drawStart returns an instant, often the beginning of a window.
func drawStart(t *rapid.T, l *Limit) int64 {
	now := rapid.Int64Range(0, 1<<62).Draw(t, "start")
	switch {
	case !rapid.Bool().Draw(t, "aligned"):
	case l.Calendar != nil:
		now, _ = l.Calendar.window(now)
	default:
		now -= now % l.Window
	}
	return max(0, now)
}

// drawMove returns how far the clock moves: often within the window, often to
// about its edge, sometimes far, sometimes backwards by little or much.
func drawMove(t *rapid.T, l *Limit) int64 {
	window := l.Length()
	return rapid.OneOf(
		rapid.Int64Range(0, 10),
		rapid.Int64Range(0, window/4),
		rapid.Int64Range(window-2, window+2),
		rapid.Int64Range(0, 3*window),
		rapid.Int64Range(-10, 0),
		rapid.Int64Range(-1<<23, 1<<23), // the longest grain of time is 1<<22
		rapid.Int64Range(-2*window, 0),
		rapid.SampledFrom([]int64{-window, window, 2 * window}),
	).Draw(t, "move")
}

func drawCost(t *rapid.T, l *Limit) int64 {
	most := l.Capacity()
	return rapid.OneOf(
		rapid.Int64Range(0, max(1, most/2)),
		rapid.Int64Range(most/2, min(MaxCost, most+1)),
		rapid.Int64Range(-most/2, 0),
		rapid.Int64Range(-MaxCost, MaxCost),
	).Draw(t, "cost")
}

func TestAgainstTwin(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l, tw := drawLimit(t, a), newTwin(a)
		limits := []*Limit{l}
		if rapid.Bool().Draw(t, "changes") {
			other := drawLimit(t, a)
			other.Window, other.Calendar = l.Window, l.Calendar
			limits = append(limits, other)
		}
		for _, l := range limits {
			if a == GCRA { // the twin's schedule cannot stop and go on
				l.Limit = max(1, l.Limit)
			}
		}
		var c counter
		now := drawStart(t, l)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l = rapid.SampledFrom(limits).Draw(t, "limit of the step")
			now = max(0, now+drawMove(t, l))
			cost := drawCost(t, l)
			before := c.clone()
			d := c.step(l, now, cost)
			if want := tw.step(l, now, cost); verdictOf(d) != want {
				t.Fatalf("at %d cost %d: %+v, the twin says %+v", now, cost, d, want)
			}
			checkInstants(t, l, before, &c, d, cost)
			if d.Allowed && cost > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				if rapid.Bool().Draw(t, "twice") {
					c.giveBack(l, now, d.At, cost)
					tw.giveBack(l, now, d.At, cost)
				}
				now = max(0, now+drawMove(t, l))
				c.giveBack(l, now, d.At, cost)
				tw.giveBack(l, now, d.At, cost)
			}
		}
	})
}

// checkInstants proves RetryAt and ResetAt to the nanosecond: at them it is so,
// and just before it is not.
func checkInstants(t *rapid.T, l *Limit, before, after *counter, d Decision, cost int64) {
	before.look(l, d.At, 0) // to cut it into other buckets, if they have changed
	allowedAt := func(now int64) bool { return before.clone().look(l, now, cost).Allowed }
	patient := *l // a caller that may find room for less than is free
	if l.Algorithm.Queues() {
		patient.MaxDelay = 0
	}
	wholeAt := func(now int64) bool { return after.clone().look(&patient, now, 0).Remaining == l.Capacity() }
	switch {
	case d.Allowed && d.RetryAt != d.At:
		t.Fatalf("allowed at %d, and yet retry at %d", d.At, d.RetryAt)
	case cost > l.Capacity() && d.RetryAt != Never:
		t.Fatalf("cost %d does not fit into %d at %d", cost, l.Capacity(), d.RetryAt)
	case !d.Allowed && allowedAt(d.RetryAt-1):
		t.Fatalf("allowed before RetryAt %d", d.RetryAt)
	case d.RetryAt != Never && !allowedAt(d.RetryAt):
		t.Fatalf("denied at RetryAt %d", d.RetryAt)
	}
	if d.ResetAt < d.At {
		t.Fatalf("reset at %d, before %d", d.ResetAt, d.At)
	}
	if d.ResetAt != math.MaxInt64 && !wholeAt(d.ResetAt) {
		t.Fatalf("not reset at ResetAt %d", d.ResetAt)
	}
	if l.Limit > 0 && d.ResetAt > d.At && wholeAt(d.ResetAt-1) {
		t.Fatalf("reset before ResetAt %d", d.ResetAt)
	}
}

// Remaining is how many tokens pass one by one at the same instant, without a delay that
// a request could be spared.
func TestRemainingIsWhatIsAllowedOneByOne(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		l.Limit, l.Burst = l.Limit%200, l.Burst%200
		now := drawStart(t, l)
		var c counter
		for range rapid.IntRange(0, 4).Draw(t, "steps") {
			now += rapid.Int64Range(0, 1+2*l.Length()/max(1, l.Limit)).Draw(t, "move")
			c.step(l, now, rapid.Int64Range(0, max(1, l.Capacity())).Draw(t, "cost"))
		}
		want, passed := c.look(l, now, 0).Remaining, int64(0)
		for {
			d := c.step(l, now, 1)
			if !d.Allowed || d.Delay > 0 && !a.Queues() {
				break
			}
			passed++
		}
		if passed != want {
			t.Fatalf("%d tokens passed, and the remaining ones were %d", passed, want)
		}
	})
}

// From ResetAt on the state may be forgotten: it decides as the zero state does.
func TestForgettingAfterResetChangesNothing(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		var kept, forgotten counter
		var d Decision
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			now += rapid.Int64Range(0, l.Length()).Draw(t, "move")
			d = kept.step(l, now, rapid.Int64Range(-l.Capacity(), l.Capacity()).Draw(t, "cost"))
		}
		now = d.ResetAt
		for range 5 {
			now = addInstant(now, rapid.Int64Range(0, l.Length()).Draw(t, "later"))
			if now == math.MaxInt64 {
				return // not within the reach of time
			}
			cost := drawCost(t, l)
			if a, b := kept.step(l, now, cost), forgotten.step(l, now, cost); a != b {
				t.Fatalf("kept: %+v, forgotten: %+v", a, b)
			}
		}
	})
}

// A step that is returned at once has never happened.
func TestReturnAtOnceUndoes(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		var c counter
		c.step(l, now, rapid.Int64Range(0, l.Capacity()).Draw(t, "used"))
		now = max(0, now+drawMove(t, l))
		c.step(l, now, 0)
		before := c.clone()
		cost := rapid.Int64Range(1, MaxCost).Draw(t, "cost")
		if d := c.step(l, now, cost); d.Allowed {
			c.giveBack(l, now, d.At, cost)
		}
		if !c.equal(before) {
			t.Fatalf("%+v became %+v", before, c)
		}
	})
}

// Lowered or raised, a limit keeps what was used; above it, all is denied.
func TestChangedLimitKeepsUse(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		used := rapid.Int64Range(0, l.Capacity()).Draw(t, "used")
		var c counter
		d := c.step(l, now, used)
		changed := *l
		changed.Limit, changed.MaxDelay = drawTokens(t, "to"), 0
		if a.Drains() {
			changed.Burst = drawTokens(t, "burst to")
		}
		looked := c.look(&changed, d.At, 0)
		// The grain of time moves at most half a token.
		if want := max(0, changed.Capacity()-used); looked.Remaining < want-1 || looked.Remaining > want {
			t.Fatalf("used %d, remaining %d of %d", used, looked.Remaining, changed.Capacity())
		}
		if d = c.step(&changed, now, 1); d.Allowed && used > changed.Capacity() {
			t.Fatalf("allowed above the new limit: %+v", d)
		}
	})
}

// A step that is returned later leaves no more room than if it had not been.
func TestReturnNeverFreesOthers(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		undone := rapid.IntRange(0, 4).Draw(t, "undone")
		var with, without counter
		var takenAt, taken int64
		for i := range 5 {
			now += rapid.Int64Range(0, l.Length()/2).Draw(t, "later")
			cost := rapid.Int64Range(0, l.Capacity()).Draw(t, "cost")
			switch d := with.step(l, now, cost); {
			case i == undone && d.Allowed:
				takenAt, taken = d.At, cost
			case d.Allowed:
				without.step(l, now, cost)
			}
		}
		if taken > 0 {
			with.giveBack(l, now, takenAt, taken)
		}
		got, most := with.look(l, now, 0), without.look(l, now, 0)
		if got.Remaining > most.Remaining {
			t.Fatalf("remaining %d, without the step %d", got.Remaining, most.Remaining)
		}
	})
}

// Two names, one behaviour: they always decide alike.
func TestTokenBucketAndGCRADecideAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bucket := drawLimit(t, TokenBucket)
		gcra := *bucket
		gcra.Algorithm = GCRA
		now := drawStart(t, bucket)
		var s, r State
		for range 20 {
			now = max(0, now+drawMove(t, bucket))
			cost := drawCost(t, bucket)
			var a, b Decision
			s, a = Step(bucket, s, now, cost)
			r, b = Step(&gcra, r, now, cost)
			if a != b {
				t.Fatalf("token_bucket: %+v, gcra: %+v", a, b)
			}
		}
	})
}
