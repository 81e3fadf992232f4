package cluster

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/weirlimit/weir/shard"
)

// A take that is denied only because of tentative takes is Contended: the groups of those takes are not decided yet,
// and may give them back. Its own group gives back what it has taken, and is asked again until the owner is certain. A
// group that waits holds nothing, so that two groups never wait for each other.

// Bounds of the wait for tentative takes of others.
const (
	contendedFor   = 4                      // attempts: how long a group is asked again at most,
	contendedMost  = 100 * time.Millisecond // or for so long
	contendedPause = time.Millisecond
	maxContended   = 8 * time.Millisecond // the longest pause before it is asked again; pauses double until then
	ampleShare     = 4                    // a take that leaves less than an ampleShare-th of the limit is confirmed at once
)

// contended reports whether nothing denies g but takes that are Contended.
func contended(g *shard.Group) (found bool) {
	if g.Allowed {
		return false
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		if t.Shadow || !denies(t) {
			continue
		}
		if !t.Contended || t.Source == shard.Overloaded || t.Source == shard.Undecided {
			return false
		}
		found = true
	}
	return found
}

// firstContended returns the index of the first contended group, len(groups) if there is none.
func firstContended(groups []shard.Group) int {
	for i := range groups {
		if contended(&groups[i]) {
			return i
		}
	}
	return len(groups)
}

// decideContended asks again for those groups that are contended, until they are not, or there is no time: then they
// stay denied.
func (r *Router) decideContended(ctx context.Context, groups []shard.Group) {
	began := time.Now()
	ends := began.Add(min(contendedFor*r.attempt, contendedMost))
	var again []shard.Group
	var index []int
	for pause := contendedPause; ; pause = min(2*pause, maxContended) {
		again, index = again[:0], index[:0]
		for i := range groups {
			if contended(&groups[i]) {
				again, index = append(again, groups[i]), append(index, i)
			}
		}
		wait := pause/2 + rand.N(pause)
		next := time.Now().Add(wait)
		if len(again) == 0 || next.After(ends) || !next.Before(r.due(ctx, next)) {
			return
		}
		pauseFor(ctx.Done(), wait)
		if ctx.Err() != nil {
			return
		}
		for i := range again {
			forget(&again[i])
			for j := range again[i].Takes {
				again[i].Takes[j].Tentative, again[i].Takes[j].Contended = false, false
			}
		}
		r.metrics.contended.Add(float64(len(again)))
		r.decide(ctx, again)
		for j, i := range index {
			groups[i] = again[j]
		}
	}
}

// keep tells the owners that what the parts of w have taken tentatively stays, because w is allowed. If there is ample
// room left, that may wait for the next request.
func (s *scatter) keep(w *split) {
	for _, p := range w.parts {
		s.stays = s.stays[:0]
		ample := true
		for i := range p.group.Takes {
			t := &p.group.Takes[i]
			if t.Tentative && t.Decision.Allowed && t.Source == shard.Owner && t.IsScarce() {
				ample = ample && t.Decision.Remaining >= max(ampleShare*t.Cost, t.Limit.Capacity()/ampleShare)
				s.stays = append(s.stays, *t)
			}
		}
		switch {
		case len(s.stays) == 0:
		case p.conn == nil:
			s.router.own.local.Keep(s.stays)
		default:
			p.conn.keep(s.stays, ample)
		}
	}
}

// keep tells the peer that takes stay, at once, or with what is asked next. If there is no room for that, the peer finds
// out by itself when they cannot be undone any more.
func (c *conn) keep(takes []shard.Take, later bool) {
	c.mu.Lock()
	g := &shard.Group{Takes: takes}
	fits := c.breaker.healthy && c.queuedBytes+stampSize+requestSize(g) <= maxQueue
	if fits {
		c.appendLocked(opKeep, 0, g, 0, nil)
	}
	c.mu.Unlock()
	if fits && !later {
		c.pushAll()
	}
}
