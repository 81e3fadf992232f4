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
	if a.bursts() {
		l.Burst = drawTokens(t, "burst")
	}
	if err := l.Validate(); err != nil {
		t.Fatal(err)
	}
	return l
}

// drawStart returns an instant, often the beginning of a window.
func drawStart(t *rapid.T, l *Limit) int64 {
	now := rapid.Int64Range(0, 1<<62).Draw(t, "start")
	if rapid.Bool().Draw(t, "aligned") {
		now -= now % l.Window
	}
	return now
}

// drawMove returns how far the clock moves: often within the window, often to
// about its edge, sometimes far, sometimes backwards by little or much.
func drawMove(t *rapid.T, l *Limit) int64 {
	return rapid.OneOf(
		rapid.Int64Range(0, 10),
		rapid.Int64Range(0, l.Window/4),
		rapid.Int64Range(l.Window-2, l.Window+2),
		rapid.Int64Range(0, 3*l.Window),
		rapid.Int64Range(-10, 0),
		rapid.Int64Range(-1<<23, 1<<23), // the longest grain of time is 1<<22
		rapid.Int64Range(-2*l.Window, 0),
		rapid.SampledFrom([]int64{-l.Window, l.Window, 2 * l.Window}),
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
			other.Window = l.Window
			limits = append(limits, other)
		}
		for _, l := range limits {
			if a == GCRA { // the twin's schedule cannot stop and go on
				l.Limit = max(1, l.Limit)
			}
		}
		var s State
		now := drawStart(t, l)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			l = rapid.SampledFrom(limits).Draw(t, "limit of the step")
			now = max(0, now+drawMove(t, l))
			cost := drawCost(t, l)
			before := s
			var d Decision
			s, d = Step(l, s, now, cost)
			allowed, remaining := tw.step(l, now, cost)
			if d.Allowed != allowed || d.Remaining != remaining {
				t.Fatalf("at %d cost %d: %+v, the twin says %v, remaining %d", now, cost, d, allowed, remaining)
			}
			checkInstants(t, l, before, s, d, cost)
			if d.Allowed && cost > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				if rapid.Bool().Draw(t, "twice") {
					s = Return(l, s, now, d.At, cost)
					tw.giveBack(l, now, d.At, cost)
				}
				now = max(0, now+drawMove(t, l))
				s = Return(l, s, now, d.At, cost)
				tw.giveBack(l, now, d.At, cost)
			}
		}
	})
}

// checkInstants proves RetryAt and ResetAt to the nanosecond: at them it is so,
// and just before it is not.
func checkInstants(t *rapid.T, l *Limit, before, after State, d Decision, cost int64) {
	allowedAt := func(now int64) bool { _, d := Step(l, before, now, cost); return d.Allowed }
	wholeAt := func(now int64) bool { _, d := Step(l, after, now, 0); return d.Remaining == l.Capacity() }
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

// From ResetAt on the state may be forgotten: it decides as the zero state does.
func TestForgettingAfterResetChangesNothing(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		var kept State
		var d Decision
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			now += rapid.Int64Range(0, l.Window).Draw(t, "move")
			kept, d = Step(l, kept, now, rapid.Int64Range(-l.Capacity(), l.Capacity()).Draw(t, "cost"))
		}
		now = d.ResetAt
		forgotten := State{}
		for range 5 {
			now = addInstant(now, rapid.Int64Range(0, l.Window).Draw(t, "later"))
			if now == math.MaxInt64 {
				return // not within the reach of time
			}
			cost := drawCost(t, l)
			var a, b Decision
			kept, a = Step(l, kept, now, cost)
			forgotten, b = Step(l, forgotten, now, cost)
			if a != b {
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
		s, _ := Step(l, State{}, now, rapid.Int64Range(0, l.Capacity()).Draw(t, "used"))
		now = max(0, now+drawMove(t, l))
		before, _ := Step(l, s, now, 0)
		cost := rapid.Int64Range(1, MaxCost).Draw(t, "cost")
		after, d := Step(l, s, now, cost)
		if d.Allowed {
			after = Return(l, after, now, d.At, cost)
		}
		if after != before {
			t.Fatalf("%+v became %+v", before, after)
		}
	})
}

// Lowered or raised, a limit keeps what was used; above it, all is denied.
func TestChangedLimitKeepsUse(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l)
		used := rapid.Int64Range(0, l.Capacity()).Draw(t, "used")
		s, d := Step(l, State{}, now, used)
		changed := *l
		if changed.Limit = drawTokens(t, "to"); a.bursts() {
			changed.Burst = drawTokens(t, "burst to")
		}
		_, looked := Step(&changed, s, d.At, 0)
		// The grain of time moves at most half a token.
		if want := max(0, changed.Capacity()-used); looked.Remaining < want-1 || looked.Remaining > want {
			t.Fatalf("used %d, remaining %d of %d", used, looked.Remaining, changed.Capacity())
		}
		if _, d = Step(&changed, s, now, 1); d.Allowed && used > changed.Capacity() {
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
		var with, without State
		var takenAt, taken int64
		for i := range 5 {
			now += rapid.Int64Range(0, l.Window/2).Draw(t, "later")
			cost := rapid.Int64Range(0, l.Capacity()).Draw(t, "cost")
			var d Decision
			switch with, d = Step(l, with, now, cost); {
			case i == undone && d.Allowed:
				takenAt, taken = d.At, cost
			case d.Allowed:
				without, _ = Step(l, without, now, cost)
			}
		}
		if taken > 0 {
			with = Return(l, with, now, takenAt, taken)
		}
		_, got := Step(l, with, now, 0)
		_, most := Step(l, without, now, 0)
		if got.Remaining > most.Remaining {
			t.Fatalf("remaining %d, without the step %d", got.Remaining, most.Remaining)
		}
	})
}

// Two names, one behaviour: whatever happens, they decide alike.
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
