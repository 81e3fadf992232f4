package algorithms

import (
	"testing"

	"pgregory.net/rapid"
)

// drawTraffic drives a fresh counter through costs, refunds and a clock that
// sometimes goes backwards, and returns what was taken and when, denials with
// tokens below 0.
func drawTraffic(t *rapid.T, l *Limit, x *Long) (taken []hit) {
	now := drawStart(t, l)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		now = max(0, now+rapid.OneOf(
			rapid.Int64Range(0, l.Window/10),
			rapid.Int64Range(l.Window-2, l.Window+2),
			rapid.Int64Range(-l.Window/4, 0),
		).Draw(t, "move"))
		cost := rapid.Int64Range(1, max(1, l.Limit/2)).Draw(t, "cost")
		if d := x.Step(l, now, cost, true); d.Allowed {
			taken = append(taken, hit{d.At, cost})
		} else {
			taken = append(taken, hit{d.At, -cost})
		}
	}
	return taken
}

// inWindow is how many tokens were taken in (end - window, end], of the first n.
func inWindow(taken []hit, n int, window func(from, to int64) bool) (tokens int64) {
	for _, h := range taken[:n] {
		if h.tokens > 0 && window(h.window, taken[n-1].window) {
			tokens += h.tokens
		}
	}
	return tokens
}

// By the definition, for any position of the window.
func TestLongNeverAdmitsMoreThanTheLimitInAnyWindow(t *testing.T) {
	for _, a := range []Algorithm{SlidingWindowLog, SlidingWindowBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t, a)
				var x Long
				taken := drawTraffic(t, l, &x)
				for n := 1; n <= len(taken); n++ {
					tokens := inWindow(taken, n, func(from, to int64) bool { return to-from < l.Window })
					if tokens > l.Limit {
						t.Fatalf("%d of %d within a window that ends with %+v", tokens, l.Limit, taken[n-1])
					}
				}
			})
		})
	}
}

// Buckets deny nothing that a log of (1 + 1/n) windows would have allowed, and the log nothing that it need
// not.
func TestLongDeniesOnlyWhatItMust(t *testing.T) {
	for _, a := range []Algorithm{SlidingWindowLog, SlidingWindowBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t, a)
				var x Long
				taken := drawTraffic(t, l, &x)
				counts := func(from, to int64) bool { return to-from < l.Window }
				if a == SlidingWindowBuckets {
					n := buckets(l)
					counts = func(from, to int64) bool { // to - from < window * (1 + 1/n)
						return rat(n).Mul(rat(n), rat(to-from)).Cmp(rat(0).Mul(rat(n+1), rat(l.Window))) < 0
					}
				}
				for n := 1; n <= len(taken); n++ {
					cost := -taken[n-1].tokens
					if tokens := inWindow(taken, n, counts); cost > 0 && tokens+cost <= l.Limit {
						t.Fatalf("%+v was denied after %d of %d", taken[n-1], tokens, l.Limit)
					}
				}
			})
		})
	}
}

// A look leaves a counter as another look at the same instant does.
func TestLongLooksChangeNothing(t *testing.T) {
	for _, a := range []Algorithm{SlidingWindowLog, SlidingWindowBuckets} {
		t.Run(a.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				l := drawLimit(t, a)
				var c counter
				drawTraffic(t, l, &c.long)
				now := max(0, c.long.latest+drawMove(t, l))
				c.look(l, now, 0)
				before := c.clone()
				cost := drawCost(t, l)
				looked := c.look(l, now, cost)
				if !c.equal(before) {
					t.Fatalf("%+v became %+v", before, c)
				}
				if d := c.step(l, now, cost); d != looked {
					t.Fatalf("said %+v, did %+v", looked, d)
				}
			})
		})
	}
}

// A Long grows with its use, stays within its bound, and shrinks again.
func TestLongBytes(t *testing.T) {
	for _, tc := range []struct {
		limit *Limit
		steps int64 // one token each, a thousandth of a window apart
		want  int
	}{
		{&Limit{Algorithm: SlidingWindowLog, Limit: 2, Window: minute}, 0, 0},
		{&Limit{Algorithm: SlidingWindowLog, Limit: 2, Window: minute}, 9, 2 * entryBytes},
		{&Limit{Algorithm: SlidingWindowLog, Limit: 100, Window: minute}, 1, minEntries * entryBytes},
		{&Limit{Algorithm: SlidingWindowLog, Limit: 100, Window: minute}, 40, 64 * entryBytes},
		{&Limit{Algorithm: SlidingWindowLog, Limit: 100, Window: minute}, 900, 100 * entryBytes},
		{&Limit{Algorithm: SlidingWindowLog, Limit: MaxLog, Window: minute / 10}, 0, 0},
		{&Limit{Algorithm: SlidingWindowBuckets, Limit: MaxLimit, Window: minute}, 5000, 61 * entryBytes},
		{&Limit{Algorithm: SlidingWindowBuckets, Limit: MaxLimit, Window: minute, Buckets: 1}, 5000, 2 * entryBytes},
		{&Limit{Algorithm: SlidingWindowBuckets, Limit: 3, Window: minute}, 5000, 3 * entryBytes},
	} {
		var x Long
		now := minute
		for range tc.steps {
			now += tc.limit.Window / 1000
			x.Step(tc.limit, now, 1, true)
		}
		if x.Bytes() != tc.want {
			t.Errorf("%+v after %d steps: %d bytes, want %d", tc.limit, tc.steps, x.Bytes(), tc.want)
		}
		if x.Step(tc.limit, now+2*tc.limit.Window, 0, false); x.Bytes() > minEntries*entryBytes {
			t.Errorf("%+v when all is over: %d bytes", tc.limit, x.Bytes())
		}
	}
}

// What has grown for a burst shrinks as it passes, before all is over.
func TestLongShrinks(t *testing.T) {
	l := &Limit{Algorithm: SlidingWindowLog, Limit: 1000, Window: minute}
	var x Long
	for i := range int64(1000) {
		x.Step(l, minute+i, 1, true)
	}
	for _, tc := range []struct{ gone, want int64 }{{0, 1000}, {749, 1000}, {750, 500}, {874, 500}, {875, 250}, {999, 4}} {
		d := x.Step(l, 2*minute-1+tc.gone, 0, false)
		if d.Remaining != tc.gone || x.Bytes() != int(tc.want)*entryBytes {
			t.Errorf("%d gone: %+v, %d bytes, want %d entries", tc.gone, d, x.Bytes(), tc.want)
		}
	}
}

func TestLongNeverHoldsMoreThanItsBound(t *testing.T) {
	for _, l := range []*Limit{
		{Algorithm: SlidingWindowLog, Limit: MaxLog, Window: minute},
		{Algorithm: SlidingWindowBuckets, Limit: MaxLimit, Window: minute, Buckets: MaxBuckets},
	} {
		var x Long
		for i := range int64(3 * MaxLog) {
			x.Step(l, minute+i*minute/MaxLog/2, 1, true)
		}
		if most := int(clockOf(l).entries(l)) * entryBytes; x.Bytes() != most || most > MaxLongBytes {
			t.Errorf("%v: %d bytes, want %d, %d at most", l.Algorithm, x.Bytes(), most, MaxLongBytes)
		}
	}
}

// What is of another kind is a mistake of the caller, as an invalid limit is.
func TestLongAndShortAreNotMixed(t *testing.T) {
	panics := func(f func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		f()
		return false
	}
	for _, name := range Names() {
		a, _ := Parse(name)
		l := &Limit{Algorithm: a, Limit: 1, Window: minute}
		var x Long
		if got := panics(func() { Step(l, State{}, 1, 1) }); got != a.Long() {
			t.Errorf("%v: Step panics: %v", a, got)
		}
		if got := panics(func() { Return(l, State{}, 1, 1, 1) }); got != a.Long() {
			t.Errorf("%v: Return panics: %v", a, got)
		}
		if got := panics(func() { Merge(l, State{}, State{}, 1) }); got != a.Long() {
			t.Errorf("%v: Merge panics: %v", a, got)
		}
		if got := panics(func() { Charge(l, State{}, 1, 1, 1) }); got != a.Long() {
			t.Errorf("%v: Charge panics: %v", a, got)
		}
		if got := panics(func() { x.Step(l, 1, 1, true) }); got == a.Long() {
			t.Errorf("%v: Long.Step panics: %v", a, got)
		}
		if got := panics(func() { x.Return(l, 1, 1, 1) }); got == a.Long() {
			t.Errorf("%v: Long.Return panics: %v", a, got)
		}
		if got := panics(func() { x.Merge(l, &Long{}, 1) }); got == a.Long() {
			t.Errorf("%v: Long.Merge panics: %v", a, got)
		}
		if got := panics(func() { x.Charge(l, 1, 1, 1) }); got == a.Long() {
			t.Errorf("%v: Long.Charge panics: %v", a, got)
		}
	}
}

// For any number of entries, each token is found in its own.
func TestTickOfEveryToken(t *testing.T) {
	l := &Limit{Algorithm: SlidingWindowLog, Limit: MaxLog, Window: minute}
	for entries := range int64(9) {
		var x Long
		x.Step(l, 0, 5, true)
		x.Step(l, l.Window, 0, true) // the tokens before the first entry are gone
		var ticks []int64            // by token
		for i := range entries {
			tick := l.Window + i
			x.Step(l, tick, i%3+1, true)
			for range i%3 + 1 {
				ticks = append(ticks, tick)
			}
		}
		for i, want := range ticks {
			if got := x.tickOf(int64(i) + 1); got != want {
				t.Errorf("token %d in %d entries: %d, want %d", i+1, entries, got, want)
			}
		}
	}
}

// What was written under a longer window may have ticks that are yet to come: all of it
// counts as if it was taken now.
func TestLongOfAnotherWindow(t *testing.T) {
	written := &Limit{Algorithm: SlidingWindowBuckets, Limit: 9, Window: int64(MinWindow), Buckets: 1}
	l := &Limit{Algorithm: SlidingWindowBuckets, Limit: 9, Window: minute, Buckets: 1}
	now := 10 * minute
	var x Long
	x.Step(written, now-1, 2, true)
	x.Step(written, now, 3, true)
	if d := x.Step(l, now, 1, true); !d.Allowed || d.Remaining != 3 || d.ResetAt != 12*minute {
		t.Errorf("%+v", d)
	}
	if d := x.Step(l, now+minute, 4, true); d.Allowed || d.RetryAt != 12*minute {
		t.Errorf("a minute later: %+v", d)
	}
}
