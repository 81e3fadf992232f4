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

func TestValidate(t *testing.T) {
	ok := Limit{Algorithm: SlidingWindow, Limit: 1, Window: int64(time.Second)}
	utcMonth := calendar(t, "month/UTC")
	with := func(change func(*Limit)) Limit { l := ok; change(&l); return l }
	for _, tc := range []struct {
		limit Limit
		want  string
	}{
		{ok, "<nil>"},
		{Limit{}, fmt.Sprintf("algorithm: algorithm(0) is not one of %v", Names())},
		{with(func(l *Limit) { l.Limit = -1 }), "limit: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Limit = MaxLimit + 1 }), "limit: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Window = 9_999_999 }), "window: 9.999999ms is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Window = int64(MaxWindow) + 1 }), "window: 8784h0m0.000000001s is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Burst = 5 }), "burst: 5 is not for sliding_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = FixedWindow, -1 }), "burst: -1 is not for fixed_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, MaxLimit }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, -1 }), "burst: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = GCRA, MaxLimit+1 }), "burst: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm = 255 }), fmt.Sprintf("algorithm: algorithm(255) is not one of %v", Names())},
		{with(func(l *Limit) { l.Algorithm, l.Limit = SlidingWindowLog, MaxLog }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Limit = SlidingWindowLog, MaxLog+1 }), "limit: 10001 is not between 0 and 10000, the most that sliding_window_log keeps"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, 3600 }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, 3601 }), "buckets: 3601 is not between 1 and 3600, or 0 for 60"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, -1 }), "buckets: -1 is not between 1 and 3600, or 0 for 60"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowLog, 60 }), "buckets: 60 is not for sliding_window_log, which has none"},
		{with(func(l *Limit) { l.MaxDelay = 1 }), "max_delay: 1ns is not for sliding_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = GCRA, -1 }), "max_delay: -1ns is not between 0s and 8784h0m0s"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = LeakyBucket, int64(MaxWindow)+1 }), "max_delay: 8784h0m0.000000001s is not between 0s and 8784h0m0s"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = GCRA, int64(MaxWindow) }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = GCRA, MaxLimit-3, 3e9 }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = GCRA, MaxLimit-3, 3e9+1 }), "max_delay: 3.000000001s lets more than 2147483648 tokens be booked: 2147483645, and 1 per 1s ahead"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = LeakyBucket, MaxLimit-3, 3e9+1 }), "<nil>"},
		{with(func(l *Limit) { l.Calendar = utcMonth }), "calendar: month/UTC is not for sliding_window, only for fixed_window"},
		{with(func(l *Limit) { l.Algorithm, l.Calendar = FixedWindow, utcMonth }), "window: 1s is not 0, and calendar month/UTC takes its place"},
		{with(func(l *Limit) { l.Algorithm, l.Calendar, l.Window = FixedWindow, utcMonth, 0 }), "<nil>"},
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

func TestStepsDoNotAllocate(t *testing.T) {
	for _, name := range Names() {
		a, _ := Parse(name)
		l := &Limit{Algorithm: a, Limit: 100, Window: int64(time.Second)}
		if a.HasCalendars() {
			l.Window, l.Calendar = 0, calendar(t, "minute/Europe/Paris")
		}
		var c counter
		now := int64(0)
		step := func() {
			now += int64(time.Second) / 150 // a third is denied
			d := c.step(l, now, 1)
			c.step(l, now, -1)
			c.step(l, now, 1)
			c.giveBack(l, now-1e8, d.At, 1)
			c.charge(l, now, d.At, 1)
			c.giveBack(l, now, d.At, 1)
			if !a.Long() {
				Merge(l, c.state, c.state, now)
			}
			c.step(l, now, 1)
		}
		for range 1000 { // until a long one has grown
			step()
		}
		if allocs := testing.AllocsPerRun(1000, step); allocs != 0 {
			t.Errorf("%v: %v allocations", a, allocs)
		}
	}
	text := calendar(t, "month/Europe/Paris/15").String()
	if allocs := testing.AllocsPerRun(100, func() { calendar(t, text) }); allocs != 0 {
		t.Errorf("ParseCalendar: %v allocations", allocs)
	}
}

func BenchmarkStep(b *testing.B) {
	for _, name := range Names() {
		a, _ := Parse(name)
		most := a.MostTokens()
		for _, bc := range []struct {
			name  string
			limit Limit
		}{
			{"allowed", Limit{Limit: most, Window: int64(time.Second)}},
			{"denied", Limit{Limit: 10, Window: int64(time.Second)}},
			{"waits", Limit{Limit: 1000, Window: int64(time.Second), MaxDelay: int64(time.Second)}},
			{"calendar", Limit{Limit: 1000, Calendar: calendar(b, "month/Europe/Paris/15")}},
		} {
			if bc.limit.Algorithm = a; bc.limit.Validate() != nil {
				continue // has no delays, or no calendars
			}
			b.Run(name+"/"+bc.name, func(b *testing.B) { bc.limit.benchmark(b) })
		}
	}
}

func (l *Limit) benchmark(b *testing.B) {
	const apart = 1e9 / MaxLog / 2 // half of what a full log takes
	now := time.Now().UnixNano()
	b.ReportAllocs()
	if l.Algorithm.Long() {
		var x Long
		for range 3 * MaxLog { // until it has grown
			now += apart
			x.Step(l, now, 1, true)
		}
		for b.Loop() {
			now += apart
			x.Step(l, now, 1, true)
		}
		return
	}
	var s State
	for b.Loop() {
		now += apart
		s, _ = Step(l, s, now, 1)
	}
}
