package cluster

import (
	"context"
	"net"
	"runtime"
	"time"
)

// This file is the part of a conn that sends: queued takes as frames, and pings.

// send sends what is too large for others to wait for.
func (c *conn) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		}
		if frame, conn := c.takeFrame(maxFrame); frame != nil && !c.write(conn, frame) {
			return
		}
	}
}

// push sends the next frame, if none is under way. A small one fits into the
// connection's buffer, as the peer has read all that was sent before: so it does not
// block. A large one is left to send.
func (c *conn) push() {
	frame, conn := c.takeFrame(maxDirect)
	if frame != nil {
		_ = c.write(conn, frame) // receive notices as well
	}
}

func (c *conn) write(conn net.Conn, frame []byte) bool {
	c.frames.Inc()
	if err := writeFrame(conn, frame); err != nil {
		return false
	}
	c.reuse(frame)
	return true
}

// pushAll is push for a check just enqueued: checks about to be enqueued get the chance to join it.
func (c *conn) pushAll() {
	for seen := -1; c.growsFrom(&seen); {
		runtime.Gosched()
	}
	c.push()
}

// growsFrom reports whether the queue can be sent, and is longer than when it was last
// seen.
func (c *conn) growsFrom(seen *int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	grows := c.queuedBytes > *seen && c.unacked < maxUnacked
	*seen = c.queuedBytes
	return grows
}

// greet has a peer asked again that has called by itself.
func (c *conn) greet(now time.Time) {
	c.mu.Lock()
	if c.conn != nil && !c.isEarlierLocked() { // else it was the later life that has called, and this connection is about to end
		c.breaker.greeted(now)
		c.healthy.Store(true)
	}
	c.mu.Unlock()
	c.notice()
}

// takeFrame returns the frame to be sent now, and where to; nil if there is none. If
// it is longer than most, it is left for send.
func (c *conn) takeFrame(most int) ([]byte, net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replaceLocked()
	if len(c.queue) == 0 || c.unacked == maxUnacked || c.conn == nil {
		return nil, nil
	}
	frame := c.queue[0]
	if len(frame) > lengthSize+most {
		fill(c.wake)
		return nil, nil
	}
	c.queue[0] = nil
	c.queue = c.queue[1:]
	c.queuedBytes -= len(frame)
	c.unacked++
	now := time.Now()
	setSent(frame, stampOf(c.base, now))
	c.pacer.sending(now)
	return frame, c.conn
}

// reuse takes back the memory of a frame that was sent.
func (c *conn) reuse(frame []byte) {
	if cap(frame) > keepBytes {
		return
	}
	c.mu.Lock()
	c.spare = frame
	c.mu.Unlock()
}
