package etcd

import (
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP connections to an etcd that may change or go away.
type proxy struct {
	listener net.Listener
	wait     sync.WaitGroup
	made     chan struct{} // gets a value with every connection to the target

	mu     sync.Mutex
	target string              // guarded by mu; empty while cut
	frozen chan struct{}       // guarded by mu; of the connections made since; closed when they freeze
	conns  map[net.Conn]string // guarded by mu
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, frozen: make(chan struct{}), made: make(chan struct{}, 1000), conns: make(map[net.Conn]string)}
	p.wait.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wait.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// cut breaks all connections and lets no new one live.
func (p *proxy) cut() { p.connect("") }

// connect breaks all connections and sends new ones to target.
func (p *proxy) connect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
	for c := range p.conns {
		c.Close()
	}
}

// reconnect breaks all connections to target and waits for a new one.
func (p *proxy) reconnect(target string) {
	p.connect(target)
	for len(p.made) > 0 {
		<-p.made
	}
	<-p.made
}

// freeze leaves all connections open but forwards nothing any more on them.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
	p.frozen = make(chan struct{})
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wait.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	target, frozen := p.target, p.frozen
	p.mu.Unlock()
	if target == "" {
		return
	}
	d, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer d.Close()
	p.mu.Lock()
	stale := p.target != target
	p.conns[c], p.conns[d] = target, target
	p.mu.Unlock()
	if !stale {
		p.made <- struct{}{}
		p.wait.Go(func() { forward(d, c, frozen) })
		forward(c, d, frozen)
	}
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, d)
	p.mu.Unlock()
}

// forward copies until either end closes. When frozen it swallows.
func forward(to, from net.Conn, frozen <-chan struct{}) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		select {
		case <-frozen:
			continue
		default:
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}
