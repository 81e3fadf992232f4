package algorithms

import (
	"cmp"
	"math"
	"slices"
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

// lease is what a lender has lent and was not used yet.
type lease struct{ tokens, at, until int64 }

// lender is a counter that lends: the bucket's algorithms hold what is out.
type lender struct {
	counter
	leases []lease
}

// hold brings the counter to now, with what was lent in it as long as it may be used.
func (c *lender) hold(l *Limit, now int64) {
	if !l.Algorithm.Drains() {
		return
	}
	slices.SortFunc(c.leases, func(a, b lease) int { return cmp.Compare(a.until, b.until) })
	for len(c.leases) > 0 && c.leases[0].until <= now {
		c.state = Hold(l, c.state, c.leases[0].until, c.out())
		c.leases = c.leases[1:]
	}
	c.state = Hold(l, c.state, now, c.out())
}

func (c *lender) out() (tokens int64) {
	for _, o := range c.leases {
		tokens += o.tokens
	}
	return tokens
}

// Tokens that are counted when they are lent, and given back as far as they are not used, allow nothing
// that would not have had room if they were counted when they are used. They cost nothing that would have
// had room if they had been used when they were lent.
func TestLentTokensHaveRoomWhenTheyAreUsed(t *testing.T) {
	forEach(t, func(t *rapid.T, a Algorithm) {
		l := drawLimit(t, a)
		if a.Drains() && rapid.Bool().Draw(t, "small") {
			l.Limit, l.Burst, l.MaxDelay = l.Limit%100, l.Burst%100, 0
		}
		now := drawStart(t, l) / 2
		var c lender
		var exact counter
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.OneOf(
				rapid.Just(int64(0)),
				rapid.Int64Range(0, 1+l.Length()/max(1, l.Limit)),
				rapid.Int64Range(0, 1+l.Length()/buckets(l)),
				rapid.Int64Range(l.Length()-l.Length()/10, l.Length()+l.Length()/10),
			).Draw(t, "move")
			if len(c.leases) > 0 && rapid.Bool().Draw(t, "to the end of a lease") {
				now = max(now, rapid.SampledFrom(c.leases).Draw(t, "lease").until-1)
			}
			c.hold(l, now)
			if i := rapid.IntRange(-1, len(c.leases)-1).Draw(t, "use"); i >= 0 {
				c.use(t, l, &exact, now, i)
				continue
			}
			left := max(1, c.look(l, now, 0).Remaining)
			cost := rapid.OneOf(rapid.Just(left), rapid.Int64Range(1, left)).Draw(t, "cost")
			d := c.step(l, now, cost)
			if d.Allowed && !exact.step(l, now, cost).Allowed {
				t.Fatalf("cost %d passed at %d with leases %+v, and has no room without", cost, now, c.leases)
			}
			until := LentUntil(l, &d)
			if a.Drains() && !l.queues() {
				until = now + rapid.Int64Range(1, l.Length()).Draw(t, "until") // for any instant
			}
			n := rapid.Int64Range(0, max(0, d.Remaining)).Draw(t, "lend")
			if d.Allowed && n > 0 && until > now {
				c.leases = append(c.leases, lease{n, c.step(l, now, n).At, until})
			}
		}
	})
}

// use uses part of a lease, or gives the rest of it back, and drops it if it is over.
func (c *lender) use(t *rapid.T, l *Limit, exact *counter, now int64, i int) {
	o := &c.leases[i]
	if now < o.until {
		n := rapid.Int64Range(0, o.tokens).Draw(t, "tokens")
		if rest := o.tokens - n; rest > 0 && rapid.Bool().Draw(t, "give back") {
			if l.Algorithm.Drains() {
				c.giveBack(l, now, now, rest)
			} else {
				c.giveBack(l, now, o.at, rest)
			}
			o.tokens = n
		}
		if n > 0 {
			if d := exact.step(l, now, n); !d.Allowed || d.Delay > 0 {
				t.Fatalf("%d of the lease %+v have no room at %d: %+v", n, *o, now, d)
			}
		}
		if o.tokens -= n; o.tokens > 0 {
			return
		}
	}
	c.leases = slices.Delete(c.leases, i, i+1)
}

// A bucket whose leases all come back is as if nothing had been lent, however long they were out.
func TestReturnedTokensCostNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, TokenBucket)
		l.MaxDelay = 0
		now := drawStart(t, l) / 2
		var c lender
		var without counter
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now += rapid.Int64Range(0, 1+l.Window/max(1, l.Limit)).Draw(t, "move")
			c.hold(l, now)
			if len(c.leases) > 0 && rapid.Bool().Draw(t, "back") {
				i := rapid.IntRange(0, len(c.leases)-1).Draw(t, "lease")
				c.giveBack(l, now, now, c.leases[i].tokens)
				c.leases = slices.Delete(c.leases, i, i+1)
				continue
			}
			left := c.step(l, now, 0).Remaining
			if rapid.Bool().Draw(t, "lend") {
				c.step(l, now, left/2)
				c.leases = append(c.leases, lease{left / 2, now, math.MaxInt64})
				continue
			}
			cost := rapid.Int64Range(0, left).Draw(t, "cost")
			c.step(l, now, cost)
			without.step(l, now, cost)
		}
		c.hold(l, now)
		for _, o := range c.leases {
			c.giveBack(l, now, now, o.tokens)
		}
		if a, b := c.look(l, now, 0), without.look(l, now, 0); a != b {
			t.Fatalf("%+v, without leases %+v", a, b)
		}
	})
}

// What Outlast has added to is not below what Hold keeps, up to the instant that it is asked for, as long as the state has room for that.
func TestOutlastIsNotBelowHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, TokenBucket)
		l.Limit, l.MaxDelay = max(1, l.Limit), 0
		now := drawStart(t, l) / 2
		var c counter
		tokens := rapid.Int64Range(0, l.Capacity()).Draw(t, "lease")
		c.step(l, now, rapid.Int64Range(0, l.Capacity()-tokens).Draw(t, "used"))
		c.step(l, now, tokens)
		room := int64(product(MaxLimit-tokens, l.Window).divideUp(uint64(l.Limit))) // nanoseconds in which that much drains
		until := now + rapid.Int64Range(0, max(0, min(l.Window, room-1))).Draw(t, "until")
		raised := Outlast(l, c.state, now, tokens, until)
		for range 5 {
			at := rapid.Int64Range(now, until).Draw(t, "at")
			held, plain := Hold(l, c.state, at, tokens), Hold(l, raised, at, 0)
			_, h := Step(l, held, at, 0)
			if _, p := Step(l, plain, at, 0); p.Remaining > h.Remaining || p.ResetAt < h.ResetAt {
				t.Fatalf("at %d: %+v, held %+v", at-now, p, h)
			}
		}
		if until == now && raised != Hold(l, c.state, now, tokens) {
			t.Fatal("more was added than is needed")
		}
	})
}

// A denial of one token holds until RetryAt.
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
