// Package network provides a network in memory: hosts with names, and connections
// between them that behave as TCP does and can be made to misbehave. All waiting is
// by timers and channels, so that it runs in virtual time inside testing/synctest.
//
// Faults are set per direction between two hosts: what is sent takes longer, or does
// not arrive until the path is whole again, as when packets are dropped and sent
// again. A host that crashes breaks its connections and refuses new ones.
package network

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Bounds of a connection and of a listener.
const (
	window  = 64 << 10 // bytes that were written and not read yet, one way
	backlog = 1 << 10  // connections that wait to be accepted
)

// Network connects hosts. Its methods may be called from several goroutines.
type Network struct {
	mu    sync.Mutex
	hosts map[string]*Host // that have not crashed; guarded by mu
	paths map[route]*path  // guarded by mu
	sent  int64            // bytes; guarded by mu
}

// route is one direction between two hosts.
type route struct{ from, to string }

// path is the state of a route. It outlives the hosts at its ends.
type path struct {
	delay   time.Duration
	cut     bool
	changed chan struct{} // closed and replaced with every change
}

// New returns a network without hosts and without faults.
func New() *Network {
	return &Network{hosts: make(map[string]*Host), paths: make(map[route]*path)}
}

// Sent returns how many bytes all connections have taken.
func (n *Network) Sent() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.sent
}

// Host adds a host. The name must not be that of another, unless that has crashed.
func (n *Network) Host(name string) (*Host, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hosts[name] != nil {
		return nil, fmt.Errorf("host %q is there already", name)
	}
	h := &Host{
		network: n, name: name, down: make(chan struct{}),
		listeners: make(map[string]*listener), conns: make(map[*conn]struct{}),
	}
	n.hosts[name] = h
	return h, nil
}

// Delay makes what is sent from one host to the other take d from now on. What is
// under way arrives when it would have, and nothing overtakes it.
func (n *Network) Delay(from, to string, d time.Duration) {
	n.change(from, to, func(p *path) { p.delay = d })
}

// Cut stalls what is sent, and what is under way, from one host to the other until Heal.
func (n *Network) Cut(from, to string) { n.change(from, to, func(p *path) { p.cut = true }) }

// Heal ends Cut: what was held back arrives at once.
func (n *Network) Heal(from, to string) { n.change(from, to, func(p *path) { p.cut = false }) }

// Restore ends all delays and cuts.
func (n *Network) Restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.paths {
		p.delay, p.cut = 0, false
		p.wakeLocked()
	}
}

// Reset breaks all connections between two hosts. They may connect again.
func (n *Network) Reset(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if h := n.hosts[a]; h != nil {
		for c := range h.conns {
			if c.peer.host.name == b {
				c.breakLocked()
				c.peer.breakLocked()
			}
		}
	}
}

func (n *Network) change(from, to string, f func(*path)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pathLocked(from, to)
	f(p)
	p.wakeLocked()
}

func (n *Network) pathLocked(from, to string) *path {
	r := route{from, to}
	p := n.paths[r]
	if p == nil {
		p = &path{changed: make(chan struct{})}
		n.paths[r] = p
	}
	return p
}

func (p *path) wakeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// address is host:port.
type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

var errHostDown = errors.New("host has crashed")

// opError is what package net would return.
func opError(op string, to address, err error) error {
	return &net.OpError{Op: op, Net: to.Network(), Addr: to, Err: err}
}

var (
	errRefused = error(syscall.ECONNREFUSED)
	errReset   = error(syscall.ECONNRESET)
)
