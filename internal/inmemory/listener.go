package inmemory

import (
	"context"
	"net"
	"sync"
)

// Listener is a net.Listener in memory, for bubbles. A connection is a net.Pipe: it buffers nothing, and a write waits
// for its read. (grpc's bufconn starts timers of no duration, which under the race detector crash a bubble now and
// then.)
type Listener struct {
	conns chan net.Conn
	done  chan struct{} // closed by Close
	once  sync.Once
}

// NewListener returns a listener. The test or its server closes it, which leaves nothing behind.
func NewListener() *Listener {
	return &Listener{conns: make(chan net.Conn), done: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// DialContext connects to the listener. It returns when Accept has the other end. The error is net.ErrClosed after
// Close, and else that of ctx.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close implements net.Listener.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }
