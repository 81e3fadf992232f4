package cluster

import (
	"context"
	"time"

	"github.com/weirlimit/weir/shard"
)

// This file is the part of a conn that makes its connections, one after the other, and keeps the time of each.

// run keeps the connection up until ctx ends.
func (c *conn) run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	alarm := time.AfterFunc(connIdle, c.expire)
	alarm.Stop()
	c.mu.Lock()
	c.alarm = alarm
	c.mu.Unlock()
	for ctx.Err() == nil {
		began := time.Now()
		c.session(ctx, tick.C)
		pause := probeEvery // a peer that breaks every connection at once must not keep us busy
		if c.healthy.Load() {
			pause = redialEvery
		}
		c.broken()
		c.notice()
		if pause -= time.Since(began); pause <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-c.called: // it has just been started, as a rule
		}
	}
}

// hears records that the peer has called this node. A broken connection then connects again at once.
func (c *conn) hears() {
	c.mu.Lock()
	broken := c.conn == nil
	c.mu.Unlock()
	if broken {
		fill(c.called)
	}
}

// broken gives up everything that waits: its answers cannot come any more.
func (c *conn) broken() {
	c.mu.Lock()
	c.breaker.broken()
	c.pacer.broken()
	c.healthy.Store(false)
	lost, uncertain := c.inflight.waiting(), 0
	if c.unacked > 0 { // else nothing of it was sent
		uncertain = countable(lost)
	}
	c.inflight, c.waiting = inflight{}, 0
	c.conn, c.next, c.queue, c.queuedBytes, c.unacked, c.backlog, c.busy, c.minorVersion = nil, nil, nil, 0, 0, 0, time.Time{}, 0
	c.setAlarmLocked(time.Time{}, 0)
	c.mu.Unlock()
	c.uncertain(uncertain)
	for _, w := range lost {
		if w.call != nil {
			w.call.finish(int32(len(w.groups)))
		}
	}
}

// session is the life of one connection, and of those that take its place without a break: one goroutine sends, one receives of each, and this
// one keeps the time, because a peer that reads no more blocks the one that sends.
func (c *conn) session(ctx context.Context, tick <-chan time.Time) {
	conn, err := c.dial(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.end = cancel
	c.breaker.connected(time.Now())
	c.useLocked(conn)
	c.mu.Unlock()
	r := renewal{conn: c, used: conn, end: cancel}
	r.running.Go(func() { r.receive(conn) })
	r.running.Go(func() { defer cancel(); c.send(ctx) })
	for alive := c.tick(); alive && ctx.Err() == nil; { // the first ping closes the breaker
		select {
		case <-ctx.Done():
		case <-tick:
			alive = c.tick()
			r.look(ctx)
		}
	}
	cancel()
	r.close() // ends all; what they say no longer matters
	r.running.Wait()
}

// tick keeps the breaker's time. It is false if the connection is dead.
func (c *conn) tick() (alive bool) {
	now := time.Now()
	c.mu.Lock()
	ping := !c.isEarlierLocked() && c.breaker.tick(now)
	alive = now.Sub(c.breaker.heard) < connIdle
	c.healthy.Store(c.breaker.healthy)
	if ping {
		c.appendLocked(opPing, pingID, &shard.Group{}, 0, nil)
	}
	c.mu.Unlock()
	c.notice()
	if ping { // left to send: the goroutine of the timer must not wait for the peer to read
		fill(c.wake)
	}
	return alive
}
