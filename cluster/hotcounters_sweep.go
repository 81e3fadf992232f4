package cluster

import (
	"time"

	"github.com/weirlimit/weir/shard"
)

func (h *hotCounters) sweepLater() {
	if h.sweeps.CompareAndSwap(false, true) {
		time.AfterFunc(idleLease, func() {
			h.sweeps.Store(false)
			if h.sweep(false) {
				h.sweepLater()
			}
		})
	}
}

// sweep settles the unused leases, or all of them, and forgets what is of no use any more. It reports
// whether there are other leases.
func (h *hotCounters) sweep(all bool) (more bool) {
	told := make(map[*conn]bool)
	for i := range h.shards {
		others, lost := h.shards[i].sweep(h.started, all, told)
		more = more || others
		h.metrics.lostReturns.Add(float64(lost))
	}
	for c := range told {
		c.pushAll()
	}
	return more
}

func (h *hotCounters) settle(c *conn, takes []shard.Take) {
	if err := c.giveBack(takes, 0); err != nil {
		h.metrics.lostReturns.Inc()
	}
}

// sweep is the part of hotCounters.sweep for one shard. It queues what is to be settled before others can ask the owner, which
// would count as remaining what it does not know to be used. It adds the conns to told, and returns for how many leases they
// had no room.
func (s *hotShard) sweep(started time.Time, all bool, told map[*conn]bool) (more bool, lost int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	instant := int64(time.Since(started))
	for k, c := range s.counters {
		over := instant >= c.leaseEnds
		switch {
		case c.owed && (all || !c.renewal && (over || !c.used)):
			if err := c.conn.queueReturn([]shard.Take{c.take(k, c.limit)}, 0); err != nil {
				lost++
			}
			told[c.conn] = true
			c.settled(int64(time.Since(started)))
		case c.owed:
			c.used, more = false, true
		case c.left > 0 && !over: // of an owner that has the counter no more
			more = true
		case c.idle(instant):
			delete(s.counters, k)
		}
	}
	s.known.Store(int32(len(s.counters)))
	return more, lost
}
