package memetcd

import (
	"context"
	"net"
	"sync"
)

// gate lets pass while it is open.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed while the gate is open; guarded by mu
}

func newGate() gate {
	opened := make(chan struct{})
	close(opened)
	return gate{opened: opened}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		g.opened = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// pass waits until the gate is open, or fails when done is closed.
func (g *gate) pass(done <-chan struct{}) error {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
		return nil
	case <-done:
		return net.ErrClosed
	}
}

// gatedListener makes connections that are read and written only while the gate is open, and that end with ctx.
type gatedListener struct {
	net.Listener
	ctx  context.Context
	gate *gate
}

// Accept implements net.Listener.
func (l gatedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	gated := &gatedConn{Conn: c, gate: l.gate, done: make(chan struct{})}
	gated.forget = context.AfterFunc(l.ctx, func() { _ = gated.end() }) // gRPC waits for a client whose greeting does not arrive
	return gated, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
	once sync.Once
	done chan struct{} // closed by end

	forget func() bool // has the listener not end it
}

// Read implements net.Conn.
func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if gone := c.gate.pass(c.done); gone != nil {
		return 0, gone
	}
	return n, err
}

// Write implements net.Conn.
func (c *gatedConn) Write(b []byte) (int, error) {
	if gone := c.gate.pass(c.done); gone != nil {
		return 0, gone
	}
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *gatedConn) Close() error {
	c.forget()
	return c.end()
}

func (c *gatedConn) end() error {
	c.once.Do(func() { close(c.done) })
	return c.Conn.Close()
}
