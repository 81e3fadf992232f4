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
		for _, limit := range []int64{1, MaxLimit} {
			for _, window := range []int64{int64(MinWindow), 1<<33 - 1, 1 << 33, 1<<54 - 1, 1 << 54, int64(MaxWindow)} {
				l := &Limit{Algorithm: a, Limit: limit, Window: window}
				t.Run(fmt.Sprintf("%s/%d/%d", name, limit, window), func(t *testing.T) { l.extremes(t) })
			}
		}
	}
}

func (l *Limit) extremes(t *testing.T) {
	for _, now := range []int64{0, 1, math.MaxInt64 - 1} {
		s, d := Step(l, State{}, now, l.Limit)
		if want := (Decision{Allowed: true, At: now, RetryAt: now, ResetAt: d.ResetAt}); d != want || d.ResetAt <= now {
			t.Errorf("all at %d: %+v", now, d)
		}
		if _, d = Step(l, s, now, l.Limit); d.Allowed || d.RetryAt <= now || d.Remaining != 0 {
			t.Errorf("again at %d: %+v", now, d)
		}
		if _, d = Step(l, s, now, MaxCost); d.Allowed || d.RetryAt <= now || d.Remaining != 0 {
			t.Errorf("the highest cost at %d: %+v", now, d)
		}
		if _, d = Step(l, s, math.MaxInt64, l.Limit); d.At != math.MaxInt64 || d.Allowed != (now < 2) {
			t.Errorf("used at %d, at the end of time: %+v", now, d)
		}
		back, d := Step(l, s, now, -MaxCost)
		if want := (Decision{Allowed: true, At: now, RetryAt: now, ResetAt: now, Remaining: l.Limit}); d != want {
			t.Errorf("all back at %d: %+v", now, d)
		}
		if _, d = Step(l, back, 0, l.Limit); !d.Allowed {
			t.Errorf("back to the beginning from %d: %+v", now, d)
		}
		if _, d = Step(l, Return(l, s, now, now, l.Limit), now, l.Limit); !d.Allowed {
			t.Errorf("returned at %d: %+v", now, d)
		}
	}
}

func TestValidate(t *testing.T) {
	ok := Limit{Algorithm: SlidingWindow, Limit: 1, Window: int64(time.Second)}
	with := func(change func(*Limit)) Limit { l := ok; change(&l); return l }
	for _, tc := range []struct {
		limit Limit
		want  string
	}{
		{ok, "<nil>"},
		{Limit{}, "algorithm: algorithm(0) is not one of [sliding_window fixed_window token_bucket gcra]"},
		{with(func(l *Limit) { l.Limit = -1 }), "limit: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Limit = MaxLimit + 1 }), "limit: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Window = 9_999_999 }), "window: 9.999999ms is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Window = int64(MaxWindow) + 1 }), "window: 8784h0m0.000000001s is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Burst = 5 }), "burst: 5 is not for sliding_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = FixedWindow, -1 }), "burst: -1 is not for fixed_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, MaxLimit }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, -1 }), "burst: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = GCRA, MaxLimit+1 }), "burst: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm = 5 }), "algorithm: algorithm(5) is not one of [sliding_window fixed_window token_bucket gcra]"},
	} {
		if got := fmt.Sprint(tc.limit.Validate()); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.limit, got, tc.want)
		}
	}
}

func TestNamesParse(t *testing.T) {
	for _, name := range Names() {
		if a, ok := Parse(name); !ok || a.String() != name {
			t.Errorf("%s parses to %v, %v", name, a, ok)
		}
	}
	for _, name := range []string{"", "algorithm(0)", "sliding-window"} {
		if a, ok := Parse(name); ok {
			t.Errorf("%q parses to %v", name, a)
		}
	}
}

func BenchmarkStep(b *testing.B) {
	for _, name := range Names() {
		a, _ := Parse(name)
		for _, bc := range []struct {
			name  string
			limit int64
		}{{"allowed", MaxLimit}, {"denied", 10}} {
			b.Run(name+"/"+bc.name, func(b *testing.B) {
				l := &Limit{Algorithm: a, Limit: bc.limit, Window: int64(time.Second)}
				now := time.Now().UnixNano()
				var s State
				b.ReportAllocs()
				for b.Loop() {
					now += 1000
					s, _ = Step(l, s, now, 1)
				}
			})
		}
	}
}
