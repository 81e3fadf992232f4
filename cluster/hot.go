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
	epochShift = 23        // an epoch has 1<<epochShift ns: 8.4 ms
	hotAsks    = 4         // in one epoch, about 500 in a second, make a counter hot
	heatSlots  = 4 << 10   // of each one counter is watched
	maxHeat    = 1<<14 - 1 // asks that are counted in one epoch
	epochMask  = 1<<20 - 1
	tagMask    = 1<<16 - 1
	hotShards  = 64                    // each behind a lock of its own
	maxHot     = 64                    // counters of one shard; further ones are treated as if they were not hot
	loanEpochs = 2                     // a loan is what was asked for in so many epochs
	idleLoan   = 20 * time.Millisecond // what nobody has used for so long is given back
)

// hotCounters knows which counters of other nodes this one asks for often, and what
// their owners have promised or lent. A lone take of one is answered from that, and goes
// to the owner only to renew it. A counter that is not hot costs a look at heat.
type hotCounters struct {
	remember, lend bool
	started        time.Time // what instants are counted from, as the monotonic clock has it
	metrics        *routerMetrics
	heat           [heatSlots]atomic.Uint64 // epoch, 16 bits of a key, asks of the epoch before, asks of this one
	shards         [hotShards]hotShard
	sweeps         atomic.Bool // whether a sweep is to come
}

type hotShard struct {
	mu       sync.Mutex
	counters map[ring.Key]*hotCounter // guarded by mu; <= maxHot
	_        [64 - 16]byte            // so that two locks never share a cache line
}

// hotCounter is what is known of one counter; guarded by its shard's mu. Instants ending
// in At are the owner's, the others are since hotCounters.started.
type hotCounter struct {
	limit   algorithms.Limit
	lane    *lane // to whoever has the counter
	renewal bool  // somebody is asking the owner; nobody else needs to

	promised bool // whether the answer to the renewal says that its denial stays; its lane's and his

	denial                 algorithms.Decision
	denialSent, denialEnds int64 // when the question was sent, and until when the denial holds

	after               algorithms.Decision // of the last loan
	afterSent, loanEnds int64               // when it was asked for, and until when all of them may be used
	untilAt             int64               // the same, by the owner's clock
	tokens, left        int64               // of the last loan, and of all of them
	inherited           int64               // of what is left, and used first: lent by who does not have the counter any more
	used                bool                // since the last sweep
}

// source says where the answer to a remote group comes from.
type source uint8

const (
	fromOwner source = iota // ask
	renew                   // ask, for others too: learn must follow
	known                   // it is answered
)

func newHotCounters(p *Promises, m *routerMetrics) *hotCounters {
	return &hotCounters{remember: p.remember, lend: p.lend, started: time.Now(), metrics: m}
}

// consult answers g, whose counters the peer behind l owns, if what is known suffices.
// It returns the counter if it is to be renewed.
func (h *hotCounters) consult(g *shard.Group, l *lane, now time.Time) (*hotCounter, source) {
	if len(g.Takes) != 1 || g.Takes[0].Cost <= 0 || g.Peek || g.Reset || !h.remember && !h.lend {
		return nil, fromOwner
	}
	t, instant := &g.Takes[0], int64(now.Sub(h.started))
	asks := h.count(t.Key, instant)
	if asks < hotAsks {
		return nil, fromOwner
	}
	s := h.shard(t.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.find(t, l, instant)
	switch {
	case c == nil:
		return nil, fromOwner
	case g.Lend == 0 && c.spends(t, instant):
		h.metrics.lentChecks.Inc()
		g.Allowed = true
		return nil, known
	case t.Cost == 1 && c.denies(instant):
		h.metrics.remembered.Inc()
		t.Decision, t.Source = c.denial, shard.Owner
		t.Decision.At += instant - c.denialSent
		g.Allowed = t.Shadow
		return nil, known
	case c.renewal || g.Lend > 0:
		return nil, fromOwner
	}
	c.renewal, c.promised = true, false
	if h.lend && !t.Strict {
		g.Lend, g.Tokens = min(shard.MaxLoan, asks*loanEpochs*t.Cost), t.Cost
	}
	return c, renew
}

// learn keeps what the owner has answered to g, which consult wanted to be asked, and was
// at the instant sent.
func (h *hotCounters) learn(c *hotCounter, g *shard.Group, sent time.Time) {
	t, instant := &g.Takes[0], int64(sent.Sub(h.started))
	loan := g.Loan
	g.Lend, g.Tokens, g.Loan = 0, 0, shard.Loan{}
	s := h.shard(t.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.renewal = false
	switch {
	case loan.Tokens > 0:
		c.borrow(t, loan, instant)
		h.sweepLater()
	case t.Source != shard.Owner || t.Decision.Allowed:
	default:
		if c.promised && h.remember {
			c.denial, c.denialSent, c.denialEnds = t.Decision, instant, instant+remembered(&t.Decision)
		}
		if now := int64(time.Since(h.started)); c.left >= t.Cost && now < c.loanEnds {
			c.spend(t, now)
			h.metrics.lentChecks.Inc()
		}
	}
}

// count counts one more ask, and returns how many there were in this epoch or the last,
// whichever is more. Of counters that share a slot the one is counted that is asked for
// more often than all others together (Boyer and Moore, "MJRTY", 1991), so that many
// cold ones never look hot. Counts that meet may lose one.
func (h *hotCounters) count(k ring.Key, instant int64) int64 {
	slot := &h.heat[k.Hi%heatSlots]
	v := slot.Load()
	epoch, tag := uint64(instant)>>epochShift<<44, k.Hi>>48<<28
	last, asks := v>>14&maxHeat, v&maxHeat
	switch gone := epoch - v&(epochMask<<44); gone {
	case 0:
	case 1 << 44:
		last, asks = asks, 0
	default:
		last, asks = 0, 0
	}
	switch same := v&(tagMask<<28) == tag; {
	case same:
		asks = min(asks+1, maxHeat)
	case asks > 0:
		slot.Store(epoch | v&(tagMask<<28) | last<<14 | (asks - 1))
		return 0
	default:
		last, asks = 0, 1
	}
	slot.Store(epoch | tag | last<<14 | asks)
	return int64(max(last, asks))
}

// shard is by other bits than heat is.
func (h *hotCounters) shard(k ring.Key) *hotShard { return &h.shards[k.Hi>>32%hotShards] }

// find returns what is known of t's counter, which lives behind l. If that is nothing, it
// makes room; nil if there is none.
func (s *hotShard) find(t *shard.Take, l *lane, instant int64) *hotCounter {
	c := s.counters[t.Key]
	switch {
	case c != nil && c.limit == t.Limit:
		if c.lane != l { // what was promised and lent holds: it has moved with the counter
			c.lane, c.inherited = l, c.left
		}
		return c
	case c != nil && c.renewal:
		return nil
	case s.counters == nil:
		s.counters = make(map[ring.Key]*hotCounter)
	case c == nil && len(s.counters) == maxHot && !s.evict(instant):
		return nil
	}
	c = &hotCounter{limit: t.Limit, lane: l}
	s.counters[t.Key] = c
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
	return !c.renewal && instant >= c.denialEnds && (c.left == 0 || instant >= c.loanEnds)
}

// denies reports whether the denial holds and need not be renewed yet. One that ends by
// itself needs not at all.
func (c *hotCounter) denies(instant int64) bool {
	if instant >= c.denialEnds {
		return false
	}
	last := c.denial.RetryAt-c.denial.At <= int64(maxPromise)
	return last || c.renewal || c.denialEnds-instant > int64(maxPromise/2)
}

// spends answers t from what was lent, unless that is too little or it is time to renew
// it. A denial says that there is no more to be had.
func (c *hotCounter) spends(t *shard.Take, instant int64) bool {
	if instant >= c.loanEnds || t.Cost > c.left {
		return false
	}
	if c.left-t.Cost < c.tokens/2 && !c.renewal && instant >= c.denialEnds {
		return false
	}
	c.spend(t, instant)
	return true
}

func (c *hotCounter) spend(t *shard.Take, instant int64) {
	c.left -= t.Cost
	c.inherited = max(0, c.inherited-t.Cost)
	c.used = true
	d := c.after
	d.At += instant - c.afterSent
	d.Remaining += c.left
	d.ResetAt, d.RetryAt = max(d.ResetAt, d.At), d.At
	t.Decision, t.Source = d, shard.Lent
}

// borrow adds a loan to what is left of others. Where those end at another instant they
// were of another window, which was over when this one was lent; but for a bucket, whose
// loans just end one after the other.
func (c *hotCounter) borrow(t *shard.Take, loan shard.Loan, sent int64) {
	ends := sent + loan.Until - loan.At
	switch {
	case c.left == 0 || sent >= c.loanEnds:
		c.left = 0
	case t.Limit.Algorithm.Drains():
		ends = min(ends, c.loanEnds)
	case algorithms.LentUntil(&t.Limit, &t.Decision) != c.untilAt:
		c.left = 0
	default:
		ends = min(ends, c.loanEnds)
	}
	c.inherited = min(c.inherited, c.left)
	c.after, c.afterSent, c.loanEnds = t.Decision, sent, ends
	c.untilAt = algorithms.LentUntil(&t.Limit, &t.Decision)
	c.tokens, c.left, c.used = loan.Tokens, c.left+loan.Tokens, true
}

func (h *hotCounters) sweepLater() {
	if h.sweeps.CompareAndSwap(false, true) {
		time.AfterFunc(idleLoan, func() {
			h.sweeps.Store(false)
			if h.sweep(false) {
				h.sweepLater()
			}
		})
	}
}

// sweep gives back the loans that nobody uses, or all of them, and forgets what is of no
// use any more. It reports whether there are other loans.
func (h *hotCounters) sweep(all bool) (more bool) {
	instant := int64(time.Since(h.started))
	for i := range h.shards {
		lent, others := h.shards[i].sweep(instant, all)
		more = more || others
		for l, takes := range lent {
			for j := range takes {
				h.giveBack(l, takes[j:j+1])
			}
		}
	}
	return more
}

func (h *hotCounters) giveBack(l *lane, takes []shard.Take) {
	if takes = shard.Left(takes); len(takes) == 0 {
		return
	}
	if err := l.giveBack(takes); err != nil {
		h.metrics.lostReturns.Inc()
		return
	}
	h.metrics.returned.Add(float64(takes[0].Cost))
}

// sweep is the part of hotCounters.sweep for one shard. It returns what is to be given
// back, by lane.
func (s *hotShard) sweep(instant int64, all bool) (lent map[*lane][]shard.Take, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, c := range s.counters {
		switch {
		case c.left > 0 && instant < c.loanEnds && (all || !c.used):
			if lent == nil {
				lent = make(map[*lane][]shard.Take)
			}
			if own := c.left - c.inherited; own > 0 { // who has it now may not have counted the rest
				lent[c.lane] = append(lent[c.lane], shard.Take{
					Key: k, Limit: c.limit, Cost: own, Decision: algorithms.Decision{At: c.after.At},
				})
			}
			c.left, c.inherited = 0, 0
		case c.left > 0 && instant < c.loanEnds:
			c.used, more = false, true
		case c.idle(instant):
			delete(s.counters, k)
		}
	}
	return lent, more
}
