package network

import (
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// conn is one end of a connection; a net.Conn.
type conn struct {
	host          *Host
	peer          *conn
	local, remote address
	in, out       *stream // in is the peer's out

	readDeadline, writeDeadline *deadline

	closed error // why this end is of no use any more; guarded by network.mu
}

// stream is one direction of a connection. Its fields are guarded by network.mu.
type stream struct {
	path     *path
	segments []segment // in the order in which they arrive
	buffered int       // bytes in segments, <= window
	last     time.Time // when the last of them arrives
	reset    time.Time // when the reader learns that the writer is gone; zero if it is not
	changed  chan struct{}
}

// segment is what one Write has sent.
type segment struct {
	data []byte // empty at the stream's end
	at   time.Time
}

func newPair(a, b *Host, from, to address) (here, there *conn) {
	n := a.network
	forth := &stream{path: n.pathLocked(a.name, b.name), changed: make(chan struct{})}
	back := &stream{path: n.pathLocked(b.name, a.name), changed: make(chan struct{})}
	here = &conn{host: a, local: from, remote: to, in: back, out: forth, readDeadline: newDeadline(), writeDeadline: newDeadline()}
	there = &conn{host: b, local: to, remote: from, in: forth, out: back, readDeadline: newDeadline(), writeDeadline: newDeadline()}
	here.peer, there.peer = there, here
	return here, there
}

func (s *stream) wakeLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// sendLocked puts data, or the end if there are none, on their way.
func (s *stream) sendLocked(data []byte) {
	at := time.Now().Add(s.path.delay)
	if at.Before(s.last) {
		at = s.last
	}
	s.last = at
	s.segments = append(s.segments, segment{data: data, at: at})
	s.buffered += len(data)
	s.wakeLocked()
}

// broken reports whether the reader has learned by now that the writer is gone.
func (s *stream) broken(now time.Time) bool {
	return !s.path.cut && !s.reset.IsZero() && !now.Before(s.reset)
}

// wake says when a waiting end should look again.
type wake struct {
	changed, path <-chan struct{}
	after         time.Duration // 0 is never
}

// whenLocked returns when one who waits for changes of s, and for what comes by heard,
// should look again. due are the instants at which that may be, zero for none.
func (s *stream) whenLocked(heard *path, now time.Time, due ...time.Time) wake {
	w := wake{changed: s.changed, path: heard.changed}
	for _, at := range due {
		if left := at.Sub(now); !heard.cut && !at.IsZero() && left > 0 && (w.after == 0 || left < w.after) {
			w.after = left
		}
	}
	return w
}

// breakLocked breaks this end: the other learns of it when the news has travelled.
func (c *conn) breakLocked() {
	if c.out.reset.IsZero() {
		c.out.reset = time.Now().Add(c.out.path.delay)
	}
	c.endLocked(errReset)
}

func (c *conn) endLocked(why error) {
	if c.closed == nil {
		c.closed = why
	}
	delete(c.host.conns, c)
	c.in.wakeLocked()
	c.out.wakeLocked()
}

// Close implements net.Conn. What was written still arrives.
func (c *conn) Close() error {
	n := c.host.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed != nil {
		return opError("close", c.remote, net.ErrClosed)
	}
	c.out.sendLocked(nil)
	c.endLocked(net.ErrClosed)
	c.readDeadline.set(time.Time{})
	c.writeDeadline.set(time.Time{})
	return nil
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, w, err := c.read(b)
		if n > 0 || len(b) == 0 || errors.Is(err, io.EOF) {
			return n, err
		}
		if err == nil {
			err = w.wait(c.readDeadline)
		}
		if err != nil {
			return 0, opError("read", c.remote, err)
		}
	}
}

// read takes what has arrived; if nothing has, it says when to look again.
func (c *conn) read(b []byte) (n int, _ wake, err error) {
	c.host.network.mu.Lock()
	defer c.host.network.mu.Unlock()
	now, s := time.Now(), c.in
	var first time.Time
	if len(s.segments) > 0 {
		first = s.segments[0].at
	}
	switch {
	case c.closed != nil:
		return 0, wake{}, c.closed
	case c.readDeadline.passed():
		return 0, wake{}, os.ErrDeadlineExceeded
	case s.broken(now):
		return 0, wake{}, errReset
	case s.path.cut || first.IsZero() || now.Before(first):
		return 0, s.whenLocked(s.path, now, first, s.reset), nil
	case len(s.segments[0].data) == 0:
		return 0, wake{}, io.EOF
	}
	for n < len(b) && len(s.segments) > 0 && !now.Before(s.segments[0].at) && len(s.segments[0].data) > 0 {
		first := &s.segments[0]
		k := copy(b[n:], first.data)
		n += k
		if first.data = first.data[k:]; len(first.data) == 0 {
			s.segments = s.segments[1:]
		}
	}
	s.buffered -= n
	s.wakeLocked()
	return n, wake{}, nil
}

// Write implements net.Conn. It waits only when too much is not read yet.
func (c *conn) Write(b []byte) (n int, err error) {
	for n < len(b) {
		k, w, err := c.write(b[n:])
		n += k
		if err == nil && k == 0 {
			err = w.wait(c.writeDeadline)
		}
		if err != nil {
			return n, opError("write", c.remote, err)
		}
	}
	return n, nil
}

// write sends what there is room for; if there is none, it says when to look again.
func (c *conn) write(b []byte) (n int, _ wake, err error) {
	c.host.network.mu.Lock()
	defer c.host.network.mu.Unlock()
	now := time.Now()
	switch {
	case c.closed != nil:
		return 0, wake{}, c.closed
	case c.writeDeadline.passed():
		return 0, wake{}, os.ErrDeadlineExceeded
	case c.in.broken(now), c.peer.closed != nil && !c.in.path.cut && !now.Before(c.in.last):
		return 0, wake{}, errReset // the other end has closed, and that has arrived
	}
	n = min(len(b), window-c.out.buffered)
	if n == 0 {
		return 0, c.out.whenLocked(c.in.path, now, c.in.reset, c.in.last), nil
	}
	c.host.network.sent += int64(n)
	c.out.sendLocked(append([]byte(nil), b[:n]...))
	return n, wake{}, nil
}

func (w wake) wait(until *deadline) error {
	var after <-chan time.Time
	if w.after > 0 {
		timer := time.NewTimer(w.after)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-w.changed:
	case <-w.path:
	case <-after:
	case <-until.wait():
		return os.ErrDeadlineExceeded
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	c.readDeadline.set(t)
	c.writeDeadline.set(t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.readDeadline.set(t)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.writeDeadline.set(t)
	return nil
}
