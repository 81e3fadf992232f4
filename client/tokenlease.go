package client

import (
	"context"
	"hash/maphash"
	"math/bits"
	"strings"
	"sync/atomic"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of the table of leases, all powers of 2.
const (
	leaseSets = 4096
	leaseWays = 4       // so up to 16384 keys have leases
	heatCells = 1 << 14 // of keys that have none

	hotInterval = 27 // bits of nanoseconds: 134 ms, in which
	hotAfter    = 8  // checks make a key hot
)

// leaseTable decides checks of hot keys from lent tokens. There are no locks: the table is made of atomic
// pointers, and so are the entries. A hot key that finds no place asks a node each time.
type leaseTable struct {
	client *Client
	seed   maphash.Seed
	sets   [leaseSets][leaseWays]atomic.Pointer[entry]
	heat   [heatCells]atomic.Uint64 // interval and checks in it, of the keys that share a cell; about
}

func newLeaseTable(c *Client) *leaseTable { return &leaseTable{client: c, seed: maphash.MakeSeed()} }

// lendable reports whether lent tokens can decide a request. One for more tokens than a node
// takes is left to the node to refuse: a lease's counter would wrap if enough of them were taken from it.
func lendable(req *weirv1.RateLimitRequest) bool {
	tokens := req.GetTokensRequested()
	return tokens >= 0 && tokens <= mostCost && !req.GetPeek() && req.GetLease() == 0
}

// check decides a request from lent tokens, or asks a node.
func (t *leaseTable) check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	now, cost, hash := t.client.since(), max(1, req.GetTokensRequested()), t.hash(req)
	e := t.find(hash, req)
	if e == nil {
		if !t.hot(hash, now) {
			return t.client.check(ctx, req)
		}
		if e = t.insert(hash, now, req); e == nil {
			return t.client.check(ctx, req)
		}
	}
	response, from, left := t.take(e, now, cost)
	if response != nil && (left >= from.low || from.next.Load() != nil) {
		return response, nil
	}
	if now < e.after.Load() || e.asking.Load() || !e.asking.CompareAndSwap(false, true) {
		if response != nil {
			return response, nil
		}
		return t.client.check(ctx, req)
	}
	defer e.asking.Store(false)
	if response != nil { // others can have them in the meantime
		from.tokens.Add(cost)
		e.grow(now, from)
	}
	return t.borrow(ctx, e, req, cost)
}

// take takes tokens from the leases of a key. left is what the lease has then; without a
// lease that has enough, response is nil.
func (t *leaseTable) take(e *entry, now, cost int64) (response *weirv1.RateLimitResponse, from *lease, left int64) {
	for l := e.lease.Load(); l != nil; {
		if left := l.take(now, cost); left >= 0 {
			return l.response, l, left
		}
		next := l.next.Load()
		if next != nil && e.lease.CompareAndSwap(l, next) {
			l.timer.Stop()
			t.retire(e, l)
		}
		l = next
	}
	return nil, nil, 0
}

// borrow asks a node, for itself and for more. The caller has e.asking.
func (t *leaseTable) borrow(ctx context.Context, e *entry, req *weirv1.RateLimitRequest, cost int64) (*weirv1.RateLimitResponse, error) {
	c, begin, want := t.client, t.client.since(), e.want.Load()
	asked := e.with(cost)
	asked.Timestamp, asked.Lease = req.GetTimestamp(), want
	answer, err := c.check(ctx, asked)
	now := c.since()
	if l := newLease(answer, begin, want); l != nil && now < l.until {
		c.stats.lent.Add(uint64(l.granted))
		l.timer = time.AfterFunc(time.Duration(l.until-now), func() { t.retire(e, l) })
		e.add(l)
	} else {
		e.after.Store(now + int64(notAgain))
	}
	if answer != nil {
		answer.Lease = nil
	}
	if err == nil && isClients(answer) { // but others may have left something
		if response, _, _ := t.take(e, now, cost); response != nil {
			return response, nil
		}
	}
	return answer, err
}

// end ends a lease and returns how many tokens were left, which are to be given back.
func (t *leaseTable) end(l *lease) int64 {
	left, ok := l.end()
	if ok {
		t.client.stats.lentUsed.Add(uint64(l.granted - left))
		t.client.stats.givenBack.Add(uint64(left))
	}
	return left
}

// retire ends a lease whose time is over or that has too few tokens, and gives back what
// is left.
func (t *leaseTable) retire(e *entry, l *lease) {
	left := t.end(l)
	e.shrink(l, left)
	if left > 0 {
		t.client.post(e.giveBack(l, left))
	}
}

// close ends all leases and gives back what is left, within the client's timeout.
func (t *leaseTable) close() {
	ctx, cancel := context.WithTimeout(context.Background(), t.client.timeout)
	defer cancel()
	var back []*weirv1.RateLimitRequest
	flush := func() {
		if len(back) > 0 {
			_, _ = t.client.ask(ctx, back, true) // what does not arrive is lost to the callers, not to the limits
		}
		back = back[:0]
	}
	t.all(func(e *entry, l *lease) {
		l.timer.Stop()
		left := t.end(l)
		if left == 0 {
			return
		}
		if back = append(back, e.giveBack(l, left)); len(back) == maxFrameChecks {
			flush()
		}
	})
	flush()
}

// all calls f for every lease.
func (t *leaseTable) all(f func(*entry, *lease)) {
	for i := range t.sets {
		for j := range t.sets[i] {
			e := t.sets[i][j].Load()
			if e == nil {
				continue
			}
			for l := e.lease.Load(); l != nil; l = l.next.Load() {
				f(e, l)
			}
		}
	}
}

// inUse is how many tokens were taken from leases that have not ended.
func (t *leaseTable) inUse() (sum uint64) {
	t.all(func(_ *entry, l *lease) { sum += uint64(l.used()) })
	return sum
}

// hash does not depend on the order of the attributes.
func (t *leaseTable) hash(req *weirv1.RateLimitRequest) uint64 {
	h := maphash.String(t.seed, req.GetIdentifier())
	h = mix(h, maphash.String(t.seed, req.GetIdentifierType()))
	h = mix(h, maphash.String(t.seed, req.GetEndpoint()))
	h = mix(h, maphash.String(t.seed, req.GetDomain()))
	for key, value := range req.GetAttributes() {
		h += mix(maphash.String(t.seed, key), maphash.String(t.seed, value))
	}
	return h
}

func mix(a, b uint64) uint64 { return bits.RotateLeft64(a*0x9e3779b97f4a7c15, 31) + b }

// matches reports whether lent tokens of e may decide req.
func (e *entry) matches(req *weirv1.RateLimitRequest) bool {
	r := e.request
	if len(req.GetAttributes()) != len(e.attributes) {
		return false
	}
	for _, a := range e.attributes {
		if value, found := req.GetAttributes()[a[0]]; !found || value != a[1] {
			return false
		}
	}
	return r.GetIdentifier() == req.GetIdentifier() && r.GetIdentifierType() == req.GetIdentifierType() &&
		r.GetEndpoint() == req.GetEndpoint() && r.GetDomain() == req.GetDomain()
}

func newEntry(hash uint64, req *weirv1.RateLimitRequest) *entry {
	e := &entry{hash: hash, request: &weirv1.RateLimitRequest{
		// The caller's strings may be parts of something large.
		Identifier: strings.Clone(req.GetIdentifier()), IdentifierType: strings.Clone(req.GetIdentifierType()),
		Endpoint: strings.Clone(req.GetEndpoint()), Domain: strings.Clone(req.GetDomain()),
		Attributes: make(map[string]string, len(req.GetAttributes())),
	}}
	for key, value := range req.GetAttributes() {
		key, value = strings.Clone(key), strings.Clone(value)
		e.request.Attributes[key] = value
		e.attributes = append(e.attributes, [2]string{key, value})
	}
	e.want.Store(firstWant)
	return e
}

// with returns the request with these tokens.
func (e *entry) with(tokens int64) *weirv1.RateLimitRequest {
	r := e.request
	return &weirv1.RateLimitRequest{
		Identifier: r.GetIdentifier(), IdentifierType: r.GetIdentifierType(), Endpoint: r.GetEndpoint(),
		Domain: r.GetDomain(), Attributes: r.GetAttributes(), TokensRequested: tokens,
	}
}

func (e *entry) giveBack(l *lease, tokens int64) *weirv1.RateLimitRequest {
	req := e.with(-tokens)
	req.DebitedAt = l.debitedAt
	return req
}

func (t *leaseTable) find(hash uint64, req *weirv1.RateLimitRequest) *entry {
	set := &t.sets[hash%leaseSets]
	for i := range set {
		if e := set[i].Load(); e != nil && e.hash == hash && e.matches(req) {
			return e
		}
	}
	return nil
}

// insert makes an entry if there is room for it. If two do so at once one is not found
// again, and what is lent for it is given back.
func (t *leaseTable) insert(hash uint64, now int64, req *weirv1.RateLimitRequest) *entry {
	set := &t.sets[hash%leaseSets]
	for i := range set {
		if old := set[i].Load(); old == nil || old.idle(now) {
			e := newEntry(hash, req)
			if set[i].CompareAndSwap(old, e) {
				return e
			}
		}
	}
	return nil
}

// hot counts a check of a key that has no entry, and reports whether there were many
// of it lately. Keys that share a cell make each other look hot, and checks that come
// at once may count as one; neither does any harm.
func (t *leaseTable) hot(hash uint64, now int64) bool {
	cell := &t.heat[hash>>32%heatCells]
	interval := uint64(now) >> hotInterval << 8
	seen := cell.Load()
	if seen&^0xff != interval {
		seen = interval
	}
	if seen++; seen&0xff < hotAfter {
		cell.Store(seen)
		return false
	}
	return true
}
