package cluster

import (
	"context"
	"net"
	"sync"
	"time"
)

// This file is the part of a conn that renews its connection while it is in use, so that no check is lost when a certificate is replaced.

// outdatable is implemented by encrypted connections. IsOutdated reports whether a new connection is to take the place of this one,
// because certificates have changed or end soon.
type outdatable interface{ IsOutdated() bool }

// renewEvery is the least time between two attempts to renew a connection.
const renewEvery = time.Second

// renewal makes the connection that takes the place of an outdated one. The fields without a guard are owned by the goroutine of the session.
type renewal struct {
	conn    *conn
	used    net.Conn // in use, or just replaced
	last    time.Time
	running sync.WaitGroup
	end     context.CancelFunc // ends the session
}

// look dials a new connection if the one in use is outdated, and closes one that was replaced. It does not block.
func (r *renewal) look(ctx context.Context) {
	r.conn.mu.Lock()
	r.conn.replaceLocked()
	now, waits := r.conn.conn, r.conn.next != nil
	r.conn.mu.Unlock()
	if now != r.used {
		_ = r.used.Close() // the peer has answered all that was sent on it
		r.used = now
	}
	if waits || time.Since(r.last) < renewEvery || !isOutdated(now) {
		return
	}
	r.last = time.Now()
	r.running.Go(func() { r.dial(ctx) })
}

func isOutdated(c net.Conn) bool {
	if to, greeted := c.(*greetedConn); greeted {
		c = to.Conn
	}
	o, can := c.(outdatable)
	return can && o.IsOutdated()
}

// dial makes the next connection, and receives from it. If that fails, the one in use goes on.
func (r *renewal) dial(ctx context.Context) {
	next, err := r.conn.dial(ctx)
	if err != nil {
		return
	}
	r.conn.mu.Lock()
	unwanted := ctx.Err() != nil || r.conn.next != nil
	if !unwanted {
		r.conn.next = next
	}
	r.conn.mu.Unlock()
	if unwanted {
		_ = next.Close()
		return
	}
	r.receive(next)
}

// receive hands out the answers that come on a connection. With the one that is in use the session ends.
func (r *renewal) receive(c net.Conn) {
	r.conn.receive(c)
	r.conn.mu.Lock()
	if r.conn.next == c {
		r.conn.next = nil
	}
	inUse := r.conn.conn == c
	r.conn.mu.Unlock()
	if inUse {
		r.end()
	} else {
		_ = c.Close()
	}
}

// close closes all connections of the session, whose context has ended.
func (r *renewal) close() {
	r.conn.mu.Lock()
	now, next := r.conn.conn, r.conn.next
	r.conn.mu.Unlock()
	for _, c := range []net.Conn{r.used, now, next} {
		if c != nil {
			_ = c.Close()
		}
	}
}
