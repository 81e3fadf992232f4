package dev

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// Bounds of a proxy.
const (
	maxProxied     = 4096 // connections at once
	maxGreeting    = 512  // bytes
	greetPatience  = 5 * time.Second
	heldEvery      = 50 * time.Millisecond // how often a held connection is looked at: its caller may have hung up
	connectTimeout = 5 * time.Second
	proxied        = 'c' // what the proxy answers once it is connected
)

// Proxy forwards connections between the parts of a cluster, which are nodes and etcd, each with a name. What is sent
// between parts that are cut stays where it is until they are healed, as in a network that drops packets: no
// connection is refused or closed. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	names    map[string]string // by address
	wait     sync.WaitGroup
	slots    chan struct{} // one for each connection

	mu      sync.Mutex
	cuts    map[[2]string]bool    // guarded by mu; names in order
	changed chan struct{}         // guarded by mu; closed when cuts change or the proxy is closed
	conns   map[net.Conn]struct{} // guarded by mu
	closed  bool                  // guarded by mu
}

// NewProxy listens at host, on a free port, for connections to the addresses, each with the name of its part.
func NewProxy(host string, names map[string]string) (*Proxy, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	r := &Proxy{
		listener: l, names: names, slots: make(chan struct{}, maxProxied),
		cuts: make(map[[2]string]bool), changed: make(chan struct{}), conns: make(map[net.Conn]struct{}),
	}
	r.wait.Go(r.accept)
	return r, nil
}

// Address is where Dialer finds the proxy.
func (r *Proxy) Address() string { return r.listener.Addr().String() }

// Set cuts two parts from each other, or heals them.
func (r *Proxy) Set(a, b string, cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cut {
		r.cuts[pair(a, b)] = true
	} else {
		delete(r.cuts, pair(a, b))
	}
	if !r.closed {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// IsCut reports whether two parts are cut from each other.
func (r *Proxy) IsCut(a, b string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cuts[pair(a, b)]
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

// Close ends all connections.
func (r *Proxy) Close() error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		close(r.changed)
	}
	err := r.listener.Close()
	for conn := range r.conns {
		_ = conn.Close() // what it has to say, its node says
	}
	r.mu.Unlock()
	r.wait.Wait()
	return err
}

func (r *Proxy) accept() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection
		}
		select {
		case r.slots <- struct{}{}:
		default:
			_ = conn.Close() // too many
			continue
		}
		r.wait.Go(func() {
			defer func() { <-r.slots }()
			defer r.own(conn)()
			r.serve(conn)
		})
	}
}

// own has Close close a connection, until the function that it returns is called, which closes it as well.
func (r *Proxy) own(conn net.Conn) (end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = conn.Close() // it fails at once
	}
	r.conns[conn] = struct{}{}
	return func() {
		_ = conn.Close() // it may be closed
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, conn)
	}
}

// serve forwards one connection: the caller's name and the address come first, in one line.
func (r *Proxy) serve(conn net.Conn) {
	if conn.SetReadDeadline(time.Now().Add(greetPatience)) != nil {
		return
	}
	line, err := bufio.NewReaderSize(io.LimitReader(conn, maxGreeting), maxGreeting).ReadString('\n')
	from, address, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	to, known := r.names[address]
	if err != nil || !known || !r.hold(conn, from, to) {
		return
	}
	target, err := net.DialTimeout("tcp", address, connectTimeout)
	if err != nil {
		return
	}
	defer r.own(target)()
	if conn.SetReadDeadline(time.Time{}) != nil {
		return
	}
	if _, err := conn.Write([]byte{proxied}); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { r.forward(target, conn, from, to) })
	r.forward(conn, target, from, to)
	both.Wait()
}

// hold waits while the parts are cut, and reports whether the caller is still there then. It sends nothing before it is answered.
func (r *Proxy) hold(conn net.Conn, from, to string) bool {
	for r.IsCut(from, to) {
		if conn.SetReadDeadline(time.Now().Add(heldEvery)) != nil {
			return false
		}
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return true
}

// forward copies until either connection ends, and ends both.
func (r *Proxy) forward(dst, src net.Conn, from, to string) {
	defer func() { _ = dst.Close() }() // the other direction ends, too
	defer func() { _ = src.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := src.Read(buffer)
		if !r.await(from, to) {
			return
		}
		if n > 0 {
			if _, err := dst.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// await waits while the parts are cut, and reports whether the proxy still forwards.
func (r *Proxy) await(from, to string) bool {
	for {
		r.mu.Lock()
		cut, changed, closed := r.cuts[pair(from, to)], r.changed, r.closed
		r.mu.Unlock()
		if closed || !cut {
			return !closed
		}
		<-changed
	}
}

// Dialer returns a function that connects the part of that name to others, through the proxy at an address.
func Dialer(proxy, name string) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", proxy)
		if err != nil {
			return nil, fmt.Errorf("proxy of weir dev: %w", err)
		}
		if err := greet(ctx, conn, name, address); err != nil {
			_ = conn.Close() // the error says more
			return nil, fmt.Errorf("connect to %s through the proxy of weir dev: %w", address, err)
		}
		return conn, nil
	}
}

// greet says where a connection is to go, and waits until it is there.
func greet(ctx context.Context, conn net.Conn, name, address string) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // it then fails
	defer stop()
	_, err := fmt.Fprintf(conn, "%s %s\n", name, address)
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return errors.New("no answer there")
	case err != nil:
		return err
	}
	if !stop() {
		return ctx.Err()
	}
	return nil
}
