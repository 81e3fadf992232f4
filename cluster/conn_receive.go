package cluster

import (
	"net"
	"slices"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// This file is the part of a conn that receives: it hands out the answers.

func (c *conn) receive(conn net.Conn) {
	for frames := newFrameReader(conn, maxAnswers); ; {
		frame, err := frames.next()
		if err != nil {
			return
		}
		if err := c.deliver(frame); err != nil {
			return // a peer that talks nonsense is as good as gone
		}
	}
}

// deliver writes the answers of one frame to the groups that wait for them.
func (c *conn) deliver(frame []byte) error {
	now := time.Now()
	r := openFrame(frame)
	answered := 0 // takes
	for r.more() {
		c.mu.Lock()
		for n := 0; n < deliverAtOnce && r.more(); n++ {
			answered += c.deliverLocked(&r, now)
		}
		c.healthy.Store(c.breaker.healthy)
		c.mu.Unlock()
	}
	c.mu.Lock()
	c.unacked = max(0, c.unacked-1) // an unsolicited frame is no licence to send more
	c.pacer.answered(answered, now)
	c.mu.Unlock()
	c.pushAll()
	return r.err
}

// deliverLocked reads an answer, writes it to the group that waits for it, if one still
// does, and returns how many takes it has.
func (c *conn) deliverLocked(r *reader, now time.Time) (takes int) {
	h := r.answerHead()
	switch {
	case h.id == pingID && !h.allowed:
		c.busy = now.Add(busyFor)
	case h.id == pingID:
		if c.breaker.pong(now) && c.breaker.tick(now) {
			c.appendLocked(opPing, pingID, &shard.Group{}, 0, nil)
		}
	default:
		c.breaker.answered(now)
	}
	c.backlog = max(0, c.backlog-h.takes) // before the caller knows, which may ask again at once
	a, g, hot, err := c.nextLocked(h.id)
	if err != nil {
		r.fail(err)
	}
	fits := g != nil && h.takes == len(g.Takes)
	if fits {
		g.Allowed, g.By = h.allowed, h.by
	}
	if h.redirected > 0 {
		r.redirects(&h, g, fits && a != nil, c.redirected)
	}
	r.decisions(&h, g, fits)
	switch fits = fits && r.err == nil; {
	case a != nil:
		a.more(g, hot, &h, fits)
		a.finish(1)
	case fits && h.decided() && h.allowed:
		c.undoLocked(g, &h)
	}
	return h.takes
}

// undoLocked gives back what the peer has counted of g, which was given up before, and what it has lent.
func (c *conn) undoLocked(g *shard.Group, h *answerHead) {
	var lent []shard.Take
	if h.lent > 0 {
		for _, t := range g.Takes {
			t.Cost, t.Settles = t.Cost/g.Tokens*h.lent, true
			lent = append(lent, t)
		}
	}
	own := slices.DeleteFunc(g.Takes, func(t shard.Take) bool { return !isToUndo(&t) })
	for _, takes := range [][]shard.Take{own, lent} {
		if len(takes) > 0 {
			c.undone(c.giveBackLocked(takes, h.by) != nil)
		}
	}
}

// redirects reads which takes of g live elsewhere, if g fits the answer, and hands on where.
func (r *reader) redirects(h *answerHead, g *shard.Group, fits bool, redirected func(k ring.Key, mark uint64) (elsewhere bool)) {
	for range h.redirected {
		i, mark := r.redirectedTake(h.takes)
		if fits && r.err == nil {
			g.Takes[i].Source = shard.Redirected
			if !redirected(g.Takes[i].Key, mark) {
				g.Lost = true
			}
		}
	}
}

// nextLocked takes the request of that id off those that wait, if a caller still does. A pong, without a
// caller, may come between others. Of what was given up only the group is returned, if it may be counted.
func (c *conn) nextLocked(id uint32) (*call, *shard.Group, *hotCounter, error) {
	if id == pingID {
		return nil, nil, nil, nil
	}
	a, g, hot, err := c.inflight.next(id)
	if a != nil {
		c.waiting--
	}
	return a, g, hot, err
}
