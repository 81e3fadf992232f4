package cluster

import (
	"errors"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Bounds of HasTime (ADR 43).
const (
	maxSample  = 64                     // takes that are looked at
	crowdedFor = 100 * time.Millisecond // after a conn had no room for a request it is looked whether it has
)

// HasTime reports whether owners have time for times*len(takes) takes, which are spread over nodes as these are. It is false if a conn has no
// room for half of its part: then some take would be Overloaded, and deny. It looks at 64 takes at most.
func (r *Router) HasTime(takes []shard.Take, times int) bool {
	t, now := r.table.Load(), time.Now()
	if t == nil || !t.anyCrowded(now) {
		return true
	}
	takes = takes[:min(len(takes), maxSample)]
	var conns [maxSample]*conn
	for i := range takes {
		to := t.route(takes[i].Key)
		if t.peers[to] != nil && !takes[i].Shadow && !r.hot.has(takes[i].Key) {
			conns[i] = t.conn(to, takes[i].Key)
		}
	}
	for i := range conns {
		c, share := conns[i], 0
		if c == nil {
			continue
		}
		for j := i; j < len(conns); j++ {
			if conns[j] == c {
				conns[j] = nil
				share++
			}
		}
		if !c.hasRoom(share*times/2, now) { // half: the rest may have less for this node
			return false
		}
	}
	return true
}

// anyCrowded reports whether a conn had no room for a request lately.
func (t *routingTable) anyCrowded(now time.Time) bool {
	for _, p := range t.peers {
		if p == nil {
			continue
		}
		for _, c := range p.conns {
			if at := c.crowded.Load(); at > 0 && int64(now.Sub(c.base))-at < int64(crowdedFor) {
				return true
			}
		}
	}
	return false
}

// hasRoom reports whether the conn would accept so many takes, or refuse them for another reason than those that wait.
func (c *conn) hasRoom(takes int, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !errors.Is(c.refuseLocked(0, takes, 0, now), errOverflow)
}

// has reports whether something is known of a counter, so that checks of it may be answered without its owner.
func (h *hotCounters) has(k ring.Key) bool {
	s := h.shard(k)
	if s.known.Load() == 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counters[k] != nil
}
