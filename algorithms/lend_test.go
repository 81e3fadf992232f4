package algorithms

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLentUntil(t *testing.T) {
	const start = int64(1_000_000) * int64(time.Minute)
	month, err := ParseCalendar("month/UTC")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 2, 10, 0, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name  string
		limit Limit
		at    int64
		want  time.Duration // after at
	}{
		{"the window", Limit{Algorithm: SlidingWindow, Limit: 60, Window: int64(time.Minute)}, start + int64(20*time.Second), 40 * time.Second},
		{"its first instant", Limit{Algorithm: SlidingWindow, Limit: 60, Window: int64(time.Minute)}, start, time.Minute},
		{"the fixed window", Limit{Algorithm: FixedWindow, Limit: 60, Window: int64(time.Minute)}, start + int64(59*time.Second), time.Second},
		{"the month", Limit{Algorithm: FixedWindow, Limit: 60, Calendar: month}, at.UnixNano(), 19 * 24 * time.Hour},
		{"the sub-window", Limit{Algorithm: SlidingWindowBuckets, Limit: 60, Window: int64(time.Minute)}, start + int64(1700*time.Millisecond), 300 * time.Millisecond},
		{"until empty", Limit{Algorithm: TokenBucket, Limit: 60, Window: int64(time.Minute)}, start, 6 * time.Second},
		{"until empty", Limit{Algorithm: GCRA, Limit: 60, Window: int64(time.Minute), Burst: 10}, start, 6 * time.Second},
		{"nothing of a log", Limit{Algorithm: SlidingWindowLog, Limit: 60, Window: int64(time.Minute)}, start, 0},
		{"nothing of a queue", Limit{Algorithm: LeakyBucket, Limit: 60, Window: int64(time.Minute)}, start, 0},
		{"nothing that may wait", Limit{Algorithm: TokenBucket, Limit: 60, Window: int64(time.Minute), MaxDelay: 1}, start, 0},
	} {
		var c counter
		d := c.step(&tc.limit, tc.at, 6)
		if got := time.Duration(LentUntil(&tc.limit, &d) - tc.at); got != tc.want {
			t.Errorf("%s: lent for %v, want %v", tc.name, got, tc.want)
		}
	}
}

// loan is what a lender has lent and was not used yet.
type loan struct{ tokens, at, until int64 }

// Tokens that are counted when they are lent let nothing through that would not have had
// room if they were counted when they are used.
func TestLentTokensHaveRoomWhenTheyAreUsed(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		now := drawStart(t, l) / 2
		var lender, exact counter
		var loans []loan
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.OneOf(
				rapid.Just(int64(0)),
				rapid.Int64Range(0, 1+l.Length()/max(1, l.Limit)),
				rapid.Int64Range(0, 1+l.Length()/buckets(l)),
				rapid.Int64Range(l.Length()-l.Length()/10, l.Length()+l.Length()/10),
			).Draw(t, "move")
			if len(loans) > 0 && rapid.Bool().Draw(t, "to the end of a loan") {
				now = max(now, rapid.SampledFrom(loans).Draw(t, "loan").until-1)
			}
			if i := rapid.IntRange(-1, len(loans)-1).Draw(t, "use"); i >= 0 {
				loans = useLoan(t, l, &lender, &exact, now, loans, i)
				continue
			}
			left := max(1, lender.look(l, now, 0).Remaining)
			cost := rapid.OneOf(rapid.Just(left), rapid.Int64Range(1, left)).Draw(t, "cost")
			d := lender.step(l, now, cost)
			if d.Allowed && !exact.step(l, now, cost).Allowed {
				t.Fatalf("cost %d passed at %d beside loans %+v, and has no room without", cost, now, loans)
			}
			until := LentUntil(l, &d)
			n := rapid.Int64Range(0, max(0, d.Remaining)).Draw(t, "lend")
			if later := now + rapid.Int64Range(0, 3).Draw(t, "later"); d.Allowed && n > 0 && until > later {
				now = later
				loans = append(loans, loan{n, lender.step(l, now, n).At, until})
			}
		}
	})
}

// useLoan uses part of a loan, or gives it back where that can be, and drops it if it is
// stale.
func useLoan(t *rapid.T, l *Limit, lender, exact *counter, now int64, loans []loan, i int) []loan {
	o := &loans[i]
	if now < o.until {
		n := rapid.Int64Range(0, o.tokens).Draw(t, "tokens")
		if rest := o.tokens - n; rest > 0 && !l.Algorithm.Drains() && rapid.Bool().Draw(t, "give back") {
			lender.giveBack(l, now, o.at, rest)
			o.tokens = n
		}
		if n > 0 {
			if d := exact.step(l, now, n); !d.Allowed || d.Delay > 0 {
				t.Fatalf("%d of the loan %+v have no room at %d: %+v", n, *o, now, d)
			}
		}
		if o.tokens -= n; o.tokens > 0 {
			return loans
		}
	}
	return append(loans[:i:i], loans[i+1:]...)
}

// Who was told that one token has no room knows the answer until RetryAt.
func TestDenialOfOneTokenStays(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		written := drawLimit(t, a) // the limit may have been lowered since
		written.Window, written.Calendar = l.Window, l.Calendar
		if rapid.Bool().Draw(t, "unchanged") {
			written = l
		}
		now := drawStart(t, l) / 2
		var c counter
		for range rapid.IntRange(1, 5).Draw(t, "takes") {
			now += rapid.Int64Range(0, l.Length()/2).Draw(t, "move")
			c.step(written, now, rapid.Int64Range(0, max(1, written.Capacity())).Draw(t, "cost"))
		}
		told := c.look(l, now, 1)
		if told.Allowed || told.RetryAt == Never {
			return
		}
		for range 5 {
			at := rapid.Int64Range(told.At, told.RetryAt-1).Draw(t, "at")
			if rapid.Bool().Draw(t, "just before") {
				at = told.RetryAt - 1
			}
			if d := c.step(l, max(now, at), rapid.Int64Range(1, 3).Draw(t, "other")); d.Allowed {
				t.Fatalf("%+v allowed, although one token was denied: %+v", d, told)
			}
			now = max(now, at)
			want := told
			want.At = now
			if d := c.look(l, now, 1); d != want {
				t.Fatalf("%+v, was told %+v", d, told)
			}
		}
	})
}
