package api

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/overload"
)

// This file bounds the memory of answers on streams that their clients do not read. gRPC
// holds what is sent until the client has room, and frees its buffer then; so what is not
// freed yet is unread. When a connection ends gRPC forgets its buffers, and so does the
// connection itself here.

// unreadBudget bounds the unread answers of a node. A connection that holds little may use as much again,
// so that those that do not read keep no other client from streams.
type unreadBudget struct {
	used    atomic.Int64 // sum of held of all connections, 2*maxUnread at most
	waiting atomic.Int64 // streams that wait for room
	refused prometheus.Counter
	slow    prometheus.Counter
	late    atomic.Int64 // connections whose controlPace waits

	mu       sync.Mutex
	conns    map[*meteredConn]struct{} // guarded by mu; those that are open
	room     chan struct{}             // guarded by mu; closed and replaced when there may be some
	reclaims *time.Timer               // guarded by mu; nil unless one is to come
	stopped  bool                      // guarded by mu
}

func newUnreadBudget(r prometheus.Registerer) *unreadBudget {
	f := promauto.With(r)
	b := &unreadBudget{conns: make(map[*meteredConn]struct{}), room: make(chan struct{})}
	b.refused = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_streams_unread_total",
		Help: "Streams of checks that this node ended because their clients did not read and too many answers were waiting.",
	})
	b.slow = f.NewCounter(prometheus.CounterOpts{
		Name: "weir_connections_late_total",
		Help: "Connections over gRPC that this node closed after it had read from them later for long, because their clients cost it time and asked for little: by resets of calls and the like.",
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_unread_bytes",
		Help: "Bytes of answers on streams of checks that clients have not read yet.",
	}, func() float64 { return float64(b.used.Load()) })
	return b
}

// errUnread ends a stream whose answers are not read.
var errUnread = status.Errorf(codes.ResourceExhausted, "answers on streams are not read: this node holds %d MiB of them already", maxUnread>>20)

// Credentials has a gRPC server know its connections, which inner secures: streams of checks on
// others have no bound of what they hold.
func (l *Limiter) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return meteredCredentials{inner, l.unread, l.unfinished}
}

type meteredCredentials struct {
	credentials.TransportCredentials
	budget     *unreadBudget
	unfinished *unfinishedBudget
}

// ServerHandshake implements credentials.TransportCredentials.
func (c meteredCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return secured, info, err
	}
	m := newMeteredConn(secured, c.budget, c.unfinished)
	c.budget.mu.Lock()
	c.budget.conns[m] = struct{}{}
	c.budget.mu.Unlock()
	return m, meteredInfo{info, m}, nil
}

// Clone implements credentials.TransportCredentials.
func (c meteredCredentials) Clone() credentials.TransportCredentials {
	return meteredCredentials{c.TransportCredentials.Clone(), c.budget, c.unfinished}
}

// meteredInfo leads from a call to its connection.
type meteredInfo struct {
	credentials.AuthInfo
	conn *meteredConn
}

// meteredConnOf returns the connection of a call, nil if the server does not know its connections.
func meteredConnOf(ctx context.Context) *meteredConn {
	if p, ok := peer.FromContext(ctx); ok {
		if info, metered := p.AuthInfo.(meteredInfo); metered {
			return info.conn
		}
	}
	return nil
}

// Unwrap returns what secures the connection.
func (i meteredInfo) Unwrap() credentials.AuthInfo { return i.AuthInfo }

// meteredConn is a connection that knows what it holds of unread answers and unfinished messages, and its domains.
type meteredConn struct {
	net.Conn
	budget     *unreadBudget
	unfinished *unfinished
	pace       controlPace
	turns      readTurns
	domains    overload.Conn
	byHandlers refusedByHandlers

	mu       sync.Mutex
	held     int64     // guarded by mu; 0 once closed
	closed   bool      // guarded by mu
	progress time.Time // guarded by mu; when something was read last, or held was 0
	ended    bool      // guarded by mu; a stream was, by errUnread
}

func newMeteredConn(conn net.Conn, unread *unreadBudget, unfinished *unfinishedBudget) *meteredConn {
	m := &meteredConn{Conn: conn, budget: unread, pace: controlPace{late: &unread.late}}
	m.unfinished = newUnfinished(unfinished, func() { _ = m.Close() }) // gRPC, which reads from it, cleans up
	return m
}

// Read implements net.Conn.
func (m *meteredConn) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(m.byHandlers.part(m.turns.next(b, m.unfinished.calls, m.pace.isLate())))
	m.unfinished.calls = 0
	if !m.unfinished.received(b[:n]) {
		return 0, net.ErrClosed // what is read begins nothing any more
	}
	goesOn := m.pace.wait(m.unfinished.control + int(m.unfinished.charged.Swap(0)))
	m.unfinished.control = 0
	if !goesOn {
		m.budget.slow.Inc()
		return 0, net.ErrClosed
	}
	return n, err
}

// Write implements net.Conn.
func (m *meteredConn) Write(b []byte) (int, error) {
	m.byHandlers.writing.Lock()
	n, err := m.Conn.Write(b)
	m.byHandlers.written()
	m.unfinished.sent(b[:n])
	return n, err
}

// Close implements net.Conn. gRPC calls it whenever a connection ends.
func (m *meteredConn) Close() error {
	m.budget.mu.Lock()
	delete(m.budget.conns, m)
	m.budget.mu.Unlock()
	m.mu.Lock()
	m.closed = true
	m.budget.used.Add(-m.held)
	m.held = 0
	m.mu.Unlock()
	m.unfinished.close()
	m.budget.signalRoom()
	return m.Conn.Close()
}

// reserve holds n bytes for the answer to a message before it is decided. While there is no
// room it waits for others to be read, for unreadWait at most: then it is false, and the stream
// must end.
func (m *meteredConn) reserve(ctx context.Context, n int64) bool {
	if m.hold(n, false) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, unreadWait)
	defer cancel()
	m.budget.waiting.Add(1)
	defer m.budget.waiting.Add(-1)
	for {
		room := m.budget.nextRoom()
		if m.hold(n, false) {
			return true
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
}

// refuse counts a stream that is ended, and has an eye on what it leaves.
func (m *meteredConn) refuse() {
	m.mu.Lock()
	m.ended = true
	m.mu.Unlock()
	m.budget.refused.Inc()
	m.budget.reclaimLater()
}

// encode returns an answer of a copy of b, held until it is read in the place of what was
// reserved for it. It is false if there is no room by far; the stream must end then.
func (m *meteredConn) encode(b []byte, reserved int64) (streamAnswer, bool) {
	// Smaller buffers are not given back to any pool.
	buffer := mem.DefaultBufferPool().Get(max(len(b), minMetered))
	size := int64(cap(*buffer))
	if !m.hold(size-reserved, true) {
		mem.DefaultBufferPool().Put(buffer)
		m.release(reserved)
		return streamAnswer{}, false
	}
	*buffer = (*buffer)[:copy(*buffer, b)]
	held := &unreadAnswer{conn: m, size: size}
	return streamAnswer{wire.Encoded{Buffer: mem.NewBuffer(buffer, held)}, held}, true
}

// streamAnswer is a message to the client.
type streamAnswer struct {
	wire.Encoded
	unread *unreadAnswer // nil if it has no bound
}

// unreadAnswer is an answer that counts until it is read. It is the mem.BufferPool of its buffer, which gRPC gives back to it.
type unreadAnswer struct {
	conn *meteredConn
	size int64
	over atomic.Bool
}

// Get implements mem.BufferPool.
func (a *unreadAnswer) Get(length int) *[]byte { return mem.DefaultBufferPool().Get(length) }

// Put implements mem.BufferPool: the answer was read, or will never be.
func (a *unreadAnswer) Put(buffer *[]byte) {
	a.end()
	mem.DefaultBufferPool().Put(buffer)
}

// end has the answer not count any more.
func (a *unreadAnswer) end() {
	if !a.over.Swap(true) {
		a.conn.release(a.size)
	}
}

// minMetered is the least size that makes gRPC give a buffer back.
const minMetered = 1<<10 + 1

// hold adds n bytes to what is held, if there is room: for more of an answer that has its place
// already, all there is.
func (m *meteredConn) hold(n int64, more bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed { // what is sent is forgotten at once
		return true
	}
	most := int64(maxUnread)
	if more || m.held <= fairUnread {
		most *= 2
	}
	if m.budget.used.Add(n) > most && n > 0 {
		m.budget.used.Add(-n)
		return false
	}
	if m.held == 0 {
		m.progress = time.Now()
	}
	m.held += n
	return true
}

// release gives back what is held.
func (m *meteredConn) release(n int64) {
	m.mu.Lock()
	if !m.closed {
		m.held -= n
		m.budget.used.Add(-n)
		m.progress = time.Now()
	}
	m.mu.Unlock()
	if m.budget.waiting.Load() > 0 {
		m.budget.signalRoom()
	}
}

// isStuck reports whether nothing was read for unreadPatience of what streams have left that
// were ended. If it is false, stuck may be so later.
func (m *meteredConn) isStuck(now time.Time) (stuck, later bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := m.ended && m.held > 0
	stuck = waits && now.Sub(m.progress) >= unreadPatience
	return stuck, waits && !stuck
}

// nextRoom is closed when there may be room.
func (b *unreadBudget) nextRoom() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.room
}

func (b *unreadBudget) signalRoom() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.room)
	b.room = make(chan struct{})
}

// reclaimLater has reclaim called when clients have had their time.
func (b *unreadBudget) reclaimLater() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reclaims == nil && !b.stopped {
		b.reclaims = time.AfterFunc(unreadPatience, b.reclaim)
	}
}

// reclaim ends connections that do not even read that their streams have ended: what these have
// sent stays in memory otherwise.
func (b *unreadBudget) reclaim() {
	now := time.Now()
	var stuck []*meteredConn
	again := false
	b.mu.Lock()
	b.reclaims = nil
	for m := range b.conns {
		is, later := m.isStuck(now)
		if is {
			stuck = append(stuck, m)
		}
		again = again || later
	}
	b.mu.Unlock()
	for _, m := range stuck {
		_ = m.Close() // gRPC, which reads from it, cleans up
	}
	if again {
		b.reclaimLater()
	}
}

// stop ends reclaiming: the server will close what is left.
func (b *unreadBudget) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	if b.reclaims != nil {
		b.reclaims.Stop()
	}
}
