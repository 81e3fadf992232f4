package cluster

import (
	"context"
	"net"
	"runtime"
	"time"

	"github.com/weirlimit/weir/shard"
)

// This file is the part of a conn that sends: queued takes as frames, and pings.

// send sends what is too large for others to wait for.
func (l *conn) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		if frame, conn := l.takeFrame(maxFrame); frame != nil && !l.write(conn, frame) {
			return
		}
	}
}

// push sends the next frame, if none is under way. A small one fits into the
// connection's buffer, as the peer has read all that was sent before: so it does not
// block. A large one is left to send.
func (l *conn) push() {
	frame, conn := l.takeFrame(maxDirect)
	if frame != nil {
		_ = l.write(conn, frame) // receive notices as well
	}
}

func (l *conn) write(conn net.Conn, frame []byte) bool {
	l.frames.Inc()
	if err := writeFrame(conn, frame); err != nil {
		return false
	}
	l.reuse(frame)
	return true
}

// pushAll is push for a check just enqueued: checks about to be enqueued get the chance to join it.
func (l *conn) pushAll() {
	for seen := -1; l.growsFrom(&seen); {
		runtime.Gosched()
	}
	l.push()
}

// growsFrom reports whether the queue can be sent, and is longer than when it was last
// seen.
func (l *conn) growsFrom(seen *int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	grows := l.queuedBytes > *seen && l.unacked < maxUnacked
	*seen = l.queuedBytes
	return grows
}

// greet has a peer asked again that has called by itself.
func (l *conn) greet(now time.Time) {
	l.mu.Lock()
	if l.conn != nil {
		l.breaker.greeted(now)
		l.healthy.Store(true)
	}
	l.mu.Unlock()
	l.notice()
}

// tick keeps the breaker's time. It is false if the connection is dead.
func (l *conn) tick() (alive bool) {
	now := time.Now()
	l.mu.Lock()
	ping := l.breaker.tick(now)
	alive = now.Sub(l.breaker.heard) < connIdle
	l.healthy.Store(l.breaker.healthy)
	if ping {
		l.appendLocked(opPing, pingID, &shard.Group{}, 0, nil)
	}
	l.mu.Unlock()
	l.notice()
	if ping { // left to send: the goroutine of the timer must not wait for the peer to read
		l.kick()
	}
	return alive
}

// takeFrame returns the frame to be sent now, and where to; nil if there is none. If
// it is longer than most, it is left for send.
func (l *conn) takeFrame(most int) ([]byte, net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaceLocked()
	if len(l.queue) == 0 || l.unacked == maxUnacked || l.conn == nil {
		return nil, nil
	}
	frame := l.queue[0]
	if len(frame) > lengthSize+most {
		l.kick()
		return nil, nil
	}
	l.queue[0] = nil
	l.queue = l.queue[1:]
	l.queuedBytes -= len(frame)
	l.unacked++
	now := time.Now()
	setSent(frame, stampOf(l.base, now))
	l.pace.sending(now)
	return frame, l.conn
}

// reuse takes back the memory of a frame that was sent.
func (l *conn) reuse(frame []byte) {
	if cap(frame) > keepBytes {
		return
	}
	l.mu.Lock()
	l.spare = frame
	l.mu.Unlock()
}
