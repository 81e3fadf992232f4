package client

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// lent is an answer that lends tokens.
func lent(tokens int64, valid time.Duration) *weirv1.RateLimitResponse {
	return &weirv1.RateLimitResponse{
		Allowed: true, RuleId: "r", Lease: &weirv1.Lease{Tokens: tokens, ValidFor: durationpb.New(valid), DebitedAt: 7},
	}
}

// The timer that ends a lease may be late; the lease is over in time all the same.
func TestLeaseEndsByTheClock(t *testing.T) {
	const begin = 1000
	for valid, used := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 75 * time.Millisecond, time.Second: mostHeld, 24 * time.Hour: mostHeld, 1 << 62: mostHeld, 3: 3,
	} {
		l := newLease(lent(5, valid), begin, 5)
		if got := l.take(begin+int64(used)-1, 2); got != 3 {
			t.Errorf("valid for %v: %d left, want 3", valid, got)
		}
		if got := l.take(begin+int64(used), 2); got >= 0 {
			t.Errorf("valid for %v: %d left after %v", valid, got, used)
		}
	}
}

// Nothing is taken from a lease that has ended, even if a caller puts tokens back.
func TestLeaseIsSpentOnce(t *testing.T) {
	l := newLease(lent(5, time.Second), 1, 5)
	if got := l.take(1, 4); got != 1 || l.used() != 4 {
		t.Errorf("%d left, %d used", got, l.used())
	}
	if got := l.take(1, 2); got >= 0 || l.used() != 4 {
		t.Errorf("took 2 of 1; %d used", l.used())
	}
	if left, ok := l.end(); left != 1 || !ok {
		t.Errorf("%d left, %t", left, ok)
	}
	if left, ok := l.end(); left != 0 || ok || l.used() != 0 {
		t.Errorf("ended twice: %d left, %t", left, ok)
	}
	l.tokens.Add(1 << 31)
	if got := l.take(1, 1); got >= 0 {
		t.Errorf("%d left after the end", got)
	}
}

// A node that talks nonsense lends nothing.
func TestLeaseRefuses(t *testing.T) {
	denied := lent(5, time.Second)
	denied.Allowed = false
	for name, answer := range map[string]*weirv1.RateLimitResponse{
		"no answer": nil, "nothing": {Allowed: true}, "denied": denied, "no tokens": lent(0, time.Second),
		"negative": lent(-1, time.Second), "too many": lent(6, time.Second), "no time": lent(5, 0), "past": lent(5, -1),
	} {
		if newLease(answer, 1, 5) != nil {
			t.Error(name)
		}
	}
}

// The next lease is larger if half of the last was used in less than half of its time,
// and smaller if most of it was left over.
func TestLeaseFollowsTheDemand(t *testing.T) {
	e := new(entry)
	e.want.Store(100)
	l := newLease(lent(100, 100*time.Millisecond), 1, 100) // used for 75 ms
	e.grow(int64(38*time.Millisecond), l)
	if got := e.want.Load(); got != 100 {
		t.Errorf("used slowly: want %d", got)
	}
	e.grow(int64(37*time.Millisecond), l)
	if got := e.want.Load(); got != 200 {
		t.Errorf("used quickly: want %d", got)
	}
	e.shrink(l, 50)
	if got := e.want.Load(); got != 200 {
		t.Errorf("half is left: want %d", got)
	}
	e.shrink(l, 51)
	if got := e.want.Load(); got != 100 {
		t.Errorf("most is left: want %d", got)
	}
	for range 40 {
		e.grow(1, l)
	}
	if got := e.want.Load(); got != mostWant {
		t.Errorf("want %d at most", got)
	}
	for range 40 {
		e.shrink(l, 100)
	}
	if got := e.want.Load(); got != firstWant {
		t.Errorf("want %d at least", got)
	}
}
