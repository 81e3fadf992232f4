package network

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Host is one machine. Its methods may be called from several goroutines.
type Host struct {
	network *Network
	name    string
	down    chan struct{} // closed by Crash

	// Guarded by network.mu.
	listeners map[string]*listener
	conns     map[*conn]struct{}
	ports     int // given to connections that the host has opened
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Listen listens at host:port, where host must be this one's name.
func (h *Host) Listen(_ context.Context, at string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(at)
	if err != nil || host != h.name {
		return nil, fmt.Errorf("listen on %q: not host %s with a port", at, h.name)
	}
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.isDown() {
		return nil, opError("listen", address(at), errHostDown)
	}
	if h.listeners[at] != nil {
		return nil, fmt.Errorf("listen on %q: in use", at)
	}
	l := &listener{host: h, at: address(at), accepted: make(chan *conn, backlog), done: make(chan struct{})}
	h.listeners[at] = l
	return l, nil
}

// Dial connects to host:port. It takes a round trip; while the other host cannot be
// reached, or not answer, it waits until ctx ends.
func (h *Host) Dial(ctx context.Context, to string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(to)
	if err != nil {
		return nil, opError("dial", address(to), err)
	}
	if err := h.travel(ctx, h.name, host); err != nil {
		return nil, opError("dial", address(to), err)
	}
	c, failed := h.connect(host, address(to))
	if err := h.travel(ctx, host, h.name); err != nil { // refusals travel as well
		if c != nil {
			_ = c.Close()
		}
		return nil, opError("dial", address(to), err)
	}
	if failed != nil {
		return nil, opError("dial", address(to), failed)
	}
	return c, nil
}

// travel waits until a packet has come from one host to the other.
func (h *Host) travel(ctx context.Context, from, to string) error {
	n := h.network
	for {
		n.mu.Lock()
		p := n.pathLocked(from, to)
		delay, cut, changed := p.delay, p.cut, p.changed
		n.mu.Unlock()
		if !cut {
			return h.sleep(ctx, delay)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-h.down:
			return errHostDown
		}
	}
}

func (h *Host) sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-h.down:
		return errHostDown
	}
}

// connect hands one end of a new connection to the listener, and returns the other.
func (h *Host) connect(host string, to address) (net.Conn, error) {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.isDown() {
		return nil, errHostDown
	}
	other := n.hosts[host]
	if other == nil || other.listeners[string(to)] == nil {
		return nil, errRefused
	}
	l := other.listeners[string(to)]
	h.ports++
	from := address(net.JoinHostPort(h.name, strconv.Itoa(1<<16+h.ports))) // above those of listeners
	here, there := newPair(h, other, from, to)
	select {
	case l.accepted <- there:
	default:
		return nil, errRefused
	}
	h.conns[here], other.conns[there] = struct{}{}, struct{}{}
	return here, nil
}

// Crash breaks all connections of the host and refuses new ones, as when its processes
// are killed. Its name can then be given to another host. It may be called again.
func (h *Host) Crash() {
	n := h.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if h.isDown() {
		return
	}
	close(h.down)
	delete(n.hosts, h.name)
	for _, l := range h.listeners {
		l.closeLocked()
	}
	for c := range h.conns {
		c.breakLocked()
	}
}

func (h *Host) isDown() bool {
	select {
	case <-h.down:
		return true
	default:
		return false
	}
}

// listener is a net.Listener.
type listener struct {
	host     *Host
	at       address
	accepted chan *conn
	done     chan struct{}
	once     sync.Once
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, opError("accept", l.at, net.ErrClosed)
	}
}

// Close implements net.Listener. What was not accepted is broken.
func (l *listener) Close() error {
	l.host.network.mu.Lock()
	defer l.host.network.mu.Unlock()
	l.closeLocked()
	return nil
}

func (l *listener) closeLocked() {
	l.once.Do(func() {
		close(l.done)
		delete(l.host.listeners, string(l.at))
		for {
			select {
			case c := <-l.accepted:
				c.breakLocked()
			default:
				return
			}
		}
	})
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return l.at }
