package e2e

import (
	"io"
	"net"
	"sync"
	"testing"
)

// way is a TCP proxy in front of a node: what is advertised of the node, and what the test can cut.
type way struct {
	Address string

	gate sync.RWMutex // held while the way is mute

	mu       sync.Mutex
	to       string
	listener net.Listener
	open     []net.Conn
	copies   sync.WaitGroup
}

// newWay returns a way to an address, which is open until the test ends.
func newWay(t *testing.T, to string) *way {
	t.Helper()
	w := &way{Address: freeAddress(t), to: to}
	w.mend(t)
	t.Cleanup(w.cut)
	return w
}

// mend opens the way again.
func (w *way) mend(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", w.Address)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.listener = l
	w.mu.Unlock()
	w.copies.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.copies.Go(func() { w.join(conn) })
		}
	})
}

func (w *way) join(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the other end may have been first
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	other, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	w.mu.Lock()
	w.open = append(w.open, conn, other)
	w.mu.Unlock()
	w.copies.Go(func() {
		_, _ = io.Copy(gated{other, w}, conn) // it ends with either connection
		_ = other.Close()
	})
	_, _ = io.Copy(gated{conn, w}, other)
	_ = other.Close()
}

// gated is a connection on which nothing is sent while the way is mute.
type gated struct {
	io.Writer
	w *way
}

func (g gated) Write(b []byte) (int, error) {
	g.w.gate.RLock()
	defer g.w.gate.RUnlock()
	return g.Writer.Write(b)
}

// mute has nothing pass any more until unmute, as behind a firewall that drops packets: connections neither end nor are refused.
func (w *way) mute(t *testing.T) (unmute func()) {
	t.Helper()
	w.gate.Lock()
	unmute = sync.OnceFunc(w.gate.Unlock)
	t.Cleanup(unmute)
	return unmute
}

// redirect has the way lead to another node from now on.
func (w *way) redirect(t *testing.T, to string) {
	t.Helper()
	w.cut()
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	w.mend(t)
}

// cut ends all connections, and refuses others.
func (w *way) cut() {
	w.mu.Lock()
	if w.listener != nil {
		_ = w.listener.Close()
	}
	for _, conn := range w.open {
		_ = conn.Close()
	}
	w.listener, w.open = nil, nil
	w.mu.Unlock()
	w.copies.Wait()
}
