package cluster

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Times and bounds of hot counters.
const (
	intervalShift  = 23        // an interval has 1<<intervalShift ns: 8.4 ms
	hotAsks        = 4         // in one interval, about 500 in a second, make a counter hot
	heatSlots      = 4 << 10   // of each one counter is watched
	maxHeat        = 1<<14 - 1 // asks that are counted in one interval
	intervalMask   = 1<<20 - 1
	tagMask        = 1<<16 - 1
	hotShards      = 64                    // each behind a lock of its own
	maxHot         = 64                    // counters of one shard; further ones are treated as if they were not hot
	leaseIntervals = 2                     // a lease is the tokens that were asked for in the last leaseIntervals intervals
	idleLease      = 20 * time.Millisecond // tokens unused for that long are given back
	companyFor     = 4 << intervalShift    // how long a counter is lent from after two asked for it at once
	freshFor       = 2 << intervalShift    // how long at most what is lent is used without asking the owner what others have
	lastTokens     = 8                     // of at most this many remaining tokens, a node that holds most uses up its lease first
	answersWithin  = time.Second           // how long what is asked may be under way, with a counter that is remembered for it
	paceOver       = time.Millisecond      // the shortest time over which it is measured how fast others take
)

// hotCounters knows which counters of other nodes this one asks for often, and what
// their owners have leased: denials and tokens. A lone take of one is answered from that, and goes
// to the owner only to renew it. A counter that is not hot costs a look at heat.
type hotCounters struct {
	remember, lend bool
	started        time.Time // what instants are counted from, as the monotonic clock has it
	metrics        *routerMetrics
	heat           [heatSlots]atomic.Uint64 // interval, 16 bits of a key, asks of the interval before, asks of this one
	shards         [hotShards]hotShard
	sweeps         atomic.Bool // whether a sweep is to come
}

type hotShard struct {
	mu       sync.Mutex
	counters map[ring.Key]*hotCounter // guarded by mu; <= maxHot
	known    atomic.Int32             // len(counters), for those that do not hold mu
	_        [64 - 20]byte            // so that two locks never share a cache line
}

// hotCounter is what is known of one counter; guarded by its shard's mu. Instants ending
// in At are the owner's, the others are since hotCounters.started.
type hotCounter struct {
	limit   algorithms.Limit
	conn    *conn // to the owner of the counter
	renewal bool  // a check is asking the owner; no other needs to
	company int64 // until when it is lent from: callers come at once, not one after the other

	leased bool // whether the answer to the renewal says that its denial stays; its conn's and his

	denial                 algorithms.Decision
	denialSent, denialEnds int64 // when the request was sent, and until when the denial holds

	borrowed
}

func newHotCounters(p *GivenDenialLeases, m *routerMetrics) *hotCounters {
	return &hotCounters{remember: p.remember, lend: p.lend, started: time.Now(), metrics: m}
}

// consult answers g, whose counters the peer behind to owns, and reports so, if what is known suffices. Else it returns the counter if g is to
// renew what is known of it.
func (h *hotCounters) consult(g *shard.Group, to *conn, now time.Time) (c *hotCounter, answered bool) {
	if len(g.Takes) != 1 || g.Takes[0].Cost <= 0 || g.Peek || g.Reset || !h.remember && !h.lend {
		return nil, false
	}
	t, instant := &g.Takes[0], int64(now.Sub(h.started))
	calls := h.count(t.Key, instant)
	if calls < hotAsks {
		return nil, false
	}
	s := h.shard(t.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c = s.find(t, to, instant)
	if c != nil && c.renewal {
		c.company = instant + companyFor
	}
	switch {
	case c == nil:
		return nil, false
	case g.Lend == 0 && c.spends(t, instant, calls == hotAsks):
		h.metrics.lentChecks.Inc()
		g.Allowed = true
		return nil, true
	case t.Cost == 1 && c.denies(instant):
		h.metrics.remembered.Inc()
		t.Decision, t.Source = c.denial, shard.Owner
		t.Decision.At += instant - c.denialSent
		g.Allowed = t.Shadow
		return nil, true
	case c.renewal || g.Lend > 0:
		return nil, false
	}
	c.renewal, c.leased, g.ForNode = true, false, true
	if h.lend && !t.Strict && instant < c.company {
		g.Lend, g.Tokens = min(shard.MaxTokenLease, calls*leaseIntervals*t.Cost), t.Cost
		g.Unused = c.asking(instant)
		c.telling = g.Unused.At > 0
	}
	return c, false
}

// learn keeps what the peer behind to has answered to g, which was asked at the instant sent: to renew c if that is not
// nil.
func (h *hotCounters) learn(c *hotCounter, g *shard.Group, to *conn, sent time.Time) {
	if c == nil {
		h.overhear(g, to, int64(sent.Sub(h.started)))
		return
	}
	to, old := h.learned(c, g, int64(sent.Sub(h.started)))
	if old != nil {
		h.settle(to, old)
	}
}

// learned is learn for a renewal, without settling what is left of a lease that is over.
func (h *hotCounters) learned(c *hotCounter, g *shard.Group, instant int64) (to *conn, old []shard.Take) {
	t, lease, now := &g.Takes[0], g.TokenLease, int64(time.Since(h.started))
	told := g.Unused.At > 0
	g.Lend, g.Tokens, g.TokenLease, g.ForNode, g.Unused = 0, 0, shard.TokenLease{}, false, shard.TokenLease{}
	s := h.shard(t.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.renewal, c.telling = false, false
	if t.Source != shard.Owner {
		if told {
			c.lostReport()
		}
		return nil, nil
	}
	c.heard = instant
	if told && lease.Tokens == 0 {
		c.reported()
	}
	switch {
	case lease.Tokens > 0:
		t.Leases = true
		old = c.borrow(t, lease, instant, now)
		c.tell(t, instant)
		h.sweepLater()
		return c.conn, old
	case t.Decision.Allowed:
		c.heed(&t.Decision)
		c.tell(t, instant)
	default:
		c.heed(&t.Decision)
		if c.leased && h.remember {
			c.denial, c.denialSent, c.denialEnds = t.Decision, instant, instant+remembered(&t.Decision)
		}
		if c.left >= t.Cost && now < c.leaseEnds {
			c.spend(t, now)
			h.metrics.lentChecks.Inc()
		}
	}
	return nil, nil
}

// overhear keeps what remains by the answer to g, which was not asked to renew what is known, and has it leave out what
// this node has used of its leases. A counter that was not hot when g was asked may be now, or have been before.
func (h *hotCounters) overhear(g *shard.Group, c *conn, sent int64) {
	if g.Reset || g.LentAt != 0 { // what remains may rise
		return
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		if s := h.shard(t.Key); s.known.Load() > 0 && t.Source == shard.Owner && t.Cost >= 0 {
			s.overhear(t, c, sent)
		}
	}
}

// overhear is the part of hotCounters.overhear for one take.
func (s *hotShard) overhear(t *shard.Take, to *conn, sent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.counters[t.Key]; c != nil && c.conn == to && c.limit == t.Limit {
		c.heed(&t.Decision)
		c.tell(t, sent)
	}
}

// count counts one more ask, and returns how many there were in this interval or the last,
// the larger number. Of counters that share a slot the one is counted that is asked for
// more often than all others together (Boyer and Moore, "MJRTY", 1991), so that many
// cold ones never look hot. Counts that meet may lose one.
func (h *hotCounters) count(k ring.Key, instant int64) int64 {
	slot := &h.heat[k.Hi%heatSlots]
	v := slot.Load()
	interval, tag := uint64(instant)>>intervalShift<<44, k.Hi>>48<<28
	last, calls := v>>14&maxHeat, v&maxHeat
	switch gone := interval - v&(intervalMask<<44); gone {
	case 0:
	case 1 << 44:
		last, calls = calls, 0
	default:
		last, calls = 0, 0
	}
	switch same := v&(tagMask<<28) == tag; {
	case same:
		calls = min(calls+1, maxHeat)
	case calls > 0:
		slot.Store(interval | v&(tagMask<<28) | last<<14 | (calls - 1))
		return 0
	default:
		last, calls = 0, 1
	}
	slot.Store(interval | tag | last<<14 | calls)
	return int64(max(last, calls))
}

// shard is by other bits than heat is.
func (h *hotCounters) shard(k ring.Key) *hotShard { return &h.shards[k.Hi>>32%hotShards] }

// find returns what is known of t's counter, which lives behind to. If that is nothing, it
// makes room; nil if there is none.
func (s *hotShard) find(t *shard.Take, to *conn, instant int64) *hotCounter {
	c := s.counters[t.Key]
	switch {
	case c != nil && c.limit == t.Limit:
		if c.conn != to { // both leases hold, but the lease is not known where the counter is now
			c.conn, c.owed = to, false
		}
		return c
	case c != nil && (c.renewal || c.owed):
		return nil
	case s.counters == nil:
		s.counters = make(map[ring.Key]*hotCounter)
	case c == nil && len(s.counters) == maxHot && !s.evict(instant):
		return nil
	}
	c = &hotCounter{limit: t.Limit, conn: to}
	s.counters[t.Key] = c
	s.known.Store(int32(len(s.counters)))
	return c
}

// evict forgets a counter of which nothing is known any more. It reports whether there
// was one.
func (s *hotShard) evict(instant int64) bool {
	for k, c := range s.counters {
		if c.idle(instant) {
			delete(s.counters, k)
			return true
		}
	}
	return false
}

func (c *hotCounter) idle(instant int64) bool {
	return !c.renewal && !c.owed && instant >= max(c.denialEnds, c.unreported+int64(answersWithin)) && (c.left == 0 || instant >= c.leaseEnds)
}

// denies reports whether the denial holds and need not be renewed yet. One that ends by
// itself needs not at all.
func (c *hotCounter) denies(instant int64) bool {
	if instant >= c.denialEnds {
		return false
	}
	last := c.denial.RetryAt-c.denial.At <= int64(maxDenialLease)
	return last || c.renewal || c.denialEnds-instant > int64(maxDenialLease/2)
}
