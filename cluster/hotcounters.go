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
