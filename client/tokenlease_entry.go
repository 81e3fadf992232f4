package client

import (
	"math"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds and times of leases.
const (
	firstWant = 32                     // tokens of a key's first lease
	mostWant  = 1_000_000              // a node lends no more at once
	mostCost  = 1 << 31                // a node refuses requests for more
	notAgain  = 50 * time.Millisecond  // after a node has lent nothing
	mostHeld  = 250 * time.Millisecond // then what is left is given back, however long it is valid
)

// spent is what a lease holds that is over: however much is put back, nothing can be
// taken from it.
const spent = math.MinInt64 / 2

// lease is what a node has lent. It is used for mostHeld, and not longer than for three
// quarters of its time; then what is left is given back, while the node still takes it.
type lease struct {
	begin, until int64 // by the client's clock
	debitedAt    int64 // by the node's
	granted      int64
	low          int64 // with fewer tokens left, more are asked for
	response     *weirv1.RateLimitResponse
	timer        *time.Timer
	next         atomic.Pointer[lease] // set once, by the goroutine that has entry.asking

	_      [64]byte // what follows is written to by all processors, what stands before only read
	tokens atomic.Int64
}

// newLease returns what answer lends to a request that was sent at begin, or nil.
func newLease(answer *weirv1.RateLimitResponse, begin, wanted int64) *lease {
	lent := answer.GetLease()
	n, valid := lent.GetTokens(), lent.GetValidFor().AsDuration()
	if !answer.GetAllowed() || n <= 0 || n > wanted || valid <= 0 {
		return nil
	}
	l := &lease{
		begin: begin, until: begin + int64(min(mostHeld, valid-valid/4)), debitedAt: lent.GetDebitedAt(),
		granted: n, low: n / 2, response: proto.CloneOf(answer),
	}
	l.response.Lease, l.response.Source = nil, weirv1.Source_SOURCE_LENT
	l.tokens.Store(n)
	return l
}

// take takes tokens, and returns how many are left; below 0 if they are too few.
func (l *lease) take(now, cost int64) (left int64) {
	if now >= l.until {
		return -1
	}
	if left = l.tokens.Add(-cost); left < 0 {
		l.tokens.Add(cost)
	}
	return left
}

// end ends the lease and returns how many tokens were left. It is false if the lease
// had ended before.
func (l *lease) end() (left int64, ok bool) {
	left = l.tokens.Swap(spent)
	return max(0, left), left > spent/2
}

// used is how many tokens were taken; 0 if the lease has ended.
func (l *lease) used() int64 {
	if left := l.tokens.Load(); left > spent/2 {
		return l.granted - max(0, left)
	}
	return 0
}

// entry is a key that tokens are lent for: all requests that differ in nothing but
// their tokens and their timestamp.
type entry struct {
	hash    uint64
	request *weirv1.RateLimitRequest // without tokens; never changed

	attributes [][2]string // those of request; a list takes less time to go through

	lease  atomic.Pointer[lease] // the oldest that was not retired, or is being
	want   atomic.Int64          // tokens to ask for
	asking atomic.Bool           // a goroutine asks for more
	after  atomic.Int64          // not before, by the client's clock
}

// add appends a lease. The caller has e.asking.
func (e *entry) add(l *lease) {
	for last := e.lease.Load(); ; last = last.next.Load() {
		switch {
		case last == nil:
			e.lease.Store(l)
			return
		case last.next.Load() == nil:
			last.next.Store(l)
			return
		}
	}
}

// idle reports whether e is of no use now.
func (e *entry) idle(now int64) bool {
	for l := e.lease.Load(); l != nil; l = l.next.Load() {
		if now < l.until {
			return false
		}
	}
	return !e.asking.Load() && now >= e.after.Load()
}

// grow makes the next lease larger if the last is used up in less than its time.
func (e *entry) grow(now int64, l *lease) {
	if now-l.begin < (l.until-l.begin)/2 {
		e.want.Store(min(mostWant, 2*e.want.Load()))
	}
}

// shrink makes the next lease smaller if most of the last was left over.
func (e *entry) shrink(l *lease, left int64) {
	if left > l.granted/2 {
		e.want.Store(max(firstWant, e.want.Load()/2))
	}
}
