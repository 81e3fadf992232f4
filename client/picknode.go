package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// await returns the conn to be asked, none of those that have refused the call. While there is none it waits, if there was
// one until shortly before, and reports that. The conn is nil if that does not help.
func (c *Client) await(ctx context.Context, due time.Time, avoid *member, refusing []*member) (via *conn, waited bool) {
	if ctx.Err() != nil {
		return nil, false
	}
	if via := c.pick(c.live.now(), avoid, refusing...); via != nil || refusing != nil {
		return via, false
	}
	timer := time.NewTimer(max(1, time.Until(due)))
	defer timer.Stop()
	for {
		c.mu.Lock()
		seen := c.seen
		c.mu.Unlock()
		if via := c.pick(c.live.now(), avoid); via != nil {
			return via, true
		}
		down := c.downSince.Load()
		if down == 0 || time.Duration(c.since()-down) >= outage || c.refusal() != nil {
			return nil, true
		}
		select {
		case <-seen:
		case <-timer.C:
			return nil, true
		case <-ctx.Done():
			return nil, true
		case <-c.stopped.Done():
			return nil, true
		}
	}
}

// pick returns the conn to be asked: of two at random that answer the one with less to
// do (Azar et al. 1994); else the one that has been silent for the shortest time, as it
// may only have paused. Conns of avoid come last, and those that refuse the call not at all. It is nil if no conn is up, or none
// has answered for long.
func (c *Client) pick(now int64, avoid *member, refusing ...*member) *conn {
	conns := *c.conns.Load()
	var usable, best *conn
	shortest := outage
	for i, start := 0, rand.IntN(len(conns)); i < len(conns); i++ {
		via := conns[(start+i)%len(conns)]
		silence := via.silence(now)
		switch {
		case !via.up.Load() || slices.Contains(refusing, via.member):
		case silence < stalledAfter && via.member != avoid:
			if usable != nil {
				return lessBusy(usable, via)
			}
			usable = via
		case silence < shortest:
			best, shortest = via, silence
		}
	}
	if usable != nil {
		return usable
	}
	return best
}

func lessBusy(a, b *conn) *conn {
	if b.load.Load() < a.load.Load() {
		return b
	}
	return a
}

// hasOther reports whether a node but m can be asked.
func (c *Client) hasOther(m *member) bool {
	via := c.pick(c.live.now(), m)
	return via != nil && via.member != m
}
