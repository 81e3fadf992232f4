package cluster

import (
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

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

// spends answers t from what was lent, unless that is too little or it is time to renew
// it. A denial says that there is no more to be had.
func (c *hotCounter) spends(t *shard.Take, instant int64, unheard bool) bool {
	if instant >= c.leaseEnds || t.Cost > c.left {
		return false
	}
	old := c.left-t.Cost < c.lent/2 || c.stale(instant, unheard)
	if old && !c.renewal && instant >= c.denialEnds {
		return false
	}
	c.spend(t, instant)
	return true
}
