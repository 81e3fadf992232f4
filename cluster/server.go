package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/shard"
)

// Server answers other nodes from the local counters. It asks other nodes only for requests that it gets as a
// standby, or for a standby, and then only the owner: a request makes three legs at most, even if views differ.
type Server struct {
	local   Local
	router  *Router
	greeter *Greeter

	mu     sync.Mutex
	conns  map[net.Conn]struct{} // guarded by mu; <= maxAccepted
	closed bool                  // takes no more; guarded by mu
	served sync.WaitGroup        // grows only until closed
}

// NewServer returns the server for the counters behind local.
// The router of the same node knows where the others are, and its greeter which connections are for this node.
func NewServer(local Local, r *Router, g *Greeter) *Server {
	return &Server{local: local, router: r, greeter: g, conns: make(map[net.Conn]struct{})}
}

// Credentials makes a gRPC server hand the connections that come in on its port over to
// s. Everything else is secured by inner.
func (s *Server) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return connCredentials{inner, s}
}

type connCredentials struct {
	credentials.TransportCredentials
	server *Server
}

// ServerHandshake implements credentials.TransportCredentials. gRPC calls it in a
// goroutine of the connection, which it gives a deadline.
func (c connCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, nil, err
	}
	if first[0] != connPreface[0] {
		return c.TransportCredentials.ServerHandshake(&rewound{Conn: conn, first: first})
	}
	if err := readPreface(&rewound{Conn: conn, first: first}); err != nil {
		if version, ok := errors.AsType[connVersionError](err); ok {
			err = c.server.greeter.refuseVersion(conn, version)
		}
		return nil, nil, err
	}
	asker, err := c.server.greeter.answer(conn)
	if err != nil {
		return nil, nil, err
	}
	if !c.server.adopt(conn, asker) {
		return nil, nil, fmt.Errorf("%d conns are open already, or the server is closed", maxAccepted)
	}
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (c connCredentials) Clone() credentials.TransportCredentials {
	return connCredentials{c.TransportCredentials.Clone(), c.server}
}

// rewound is a connection whose first byte is read again.
type rewound struct {
	net.Conn
	first [1]byte
	past  bool
}

func (r *rewound) Read(b []byte) (int, error) {
	if r.past || len(b) == 0 {
		return r.Conn.Read(b)
	}
	r.past = true
	return copy(b, r.first[:]), nil
}

// adopt serves a connection of an asker until it ends. It is false if there is no room for it.
func (s *Server) adopt(conn net.Conn, asker string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) == maxAccepted {
		return false
	}
	s.conns[conn] = struct{}{}
	s.served.Go(func() {
		// Why a connection ends is of no interest here: the peer that opened it opens another.
		_ = s.serve(conn, asker)
		s.mu.Lock()
		delete(s.conns, conn)
		s.mu.Unlock()
		_ = conn.Close()
	})
	return true
}

// Shutdown takes no more connections and waits until the others have left those that there
// are, as they do when a view no longer names this node. It ends the rest with ctx.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.served.Wait()
	}()
	select {
	case <-left:
	case <-ctx.Done():
		s.Close()
		<-left
	}
}

// Close ends all connections, and waits for that.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.served.Wait()
}

// serve reads a frame, decides all of it, and writes one frame of answers, over and
// over.
func (s *Server) serve(conn net.Conn, asker string) error {
	frames, waited := newFrameReader(conn, maxFrame), new(lag)
	// No deadline of the connection: gRPC, which has accepted it, takes that away when the handshake is over.
	idle, alive := time.AfterFunc(connIdle, func() { _ = conn.Close() }), time.Now()
	defer idle.Stop()
	for {
		frame, err := frames.next()
		if err != nil {
			return err
		}
		now := time.Now()
		if now.Sub(alive) > connIdle/4 {
			idle.Reset(connIdle)
			alive = now
		}
		b := newBatch(s.router)
		b.asker, b.waited, b.now = asker, waited, now
		if b.out, err = b.answer(s.local, b.out, frame); err != nil {
			return err
		}
		if err := writeFrame(conn, b.out); err != nil {
			return err
		}
		batches.Put(b)
	}
}

// batch is what it takes to answer a frame; it is used again for another.
type batch struct {
	router   *Router
	takes    []shard.Take
	requests []request
	groups   []shard.Group
	out      []byte // the frame of answers

	asker  string    // the id of the node that asks
	waited *lag      // of the connection; nil if nothing is late
	now    time.Time // when the frame was received
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(r *Router) *batch {
	b := batches.Get().(*batch)
	b.router, b.asker, b.waited = r, "", nil
	return b
}

// answer decides all requests of a frame and returns the frame of answers, in out's
// memory. A frame with an error in it is refused as a whole, before anything is
// counted.
func (b *batch) answer(local Local, out, frame []byte) ([]byte, error) {
	if err := b.read(frame); err != nil {
		return nil, err
	}
	out = newFrame(out)
	for i := 0; i < len(b.requests); {
		q := &b.requests[i]
		switch q.op {
		case opReturn:
			b.giveBack(local, &q.group)
			i++
		case opKeep:
			local.Keep(q.group.Takes)
			i++
		case opPing:
			out = appendAnswer(out, q.id, &shard.Group{Allowed: true}, false)
			i++
		default:
			if q.lateAt(b.now) {
				b.router.metrics.dropped.Inc()
				out = appendUndecided(out, q.id, &q.group)
				i++
				break
			}
			out, i = b.decideRun(local, out, i)
		}
	}
	if b.router.busy() {
		out = appendBusy(out)
	}
	return out, nil
}

// read reads the requests of a frame, and until when each is to be answered.
func (b *batch) read(frame []byte) error {
	b.takes, b.requests = b.takes[:0], b.requests[:0]
	r := openFrame(frame)
	r.preamble()
	wait := b.waitOf(&r)
	for ; r.more(); r.preamble() {
		n := len(b.requests)
		b.requests = slices.Grow(b.requests, 1)[:n+1]
		q := &b.requests[n]
		b.takes = r.request(q, b.takes)
		if b.waited != nil && r.due != 0 && q.lapses() {
			q.until = b.now.Add(r.due.since(r.sent) - wait)
		}
	}
	return r.err
}

// waitOf returns how long the frame has waited on its way.
func (b *batch) waitOf(r *reader) time.Duration {
	if b.waited == nil || r.err != nil || r.sent == 0 {
		return 0
	}
	return b.waited.of(r.sent, b.now)
}

// giveBack undoes what this node has decided, or another one for it, and the asker does not count.
func (b *batch) giveBack(local Local, g *shard.Group) {
	if g.By != 0 {
		b.router.own.giveBackTo(g.By, nil, g.Takes)
	} else {
		b.router.own.denialLeases.giveBack(local, g.Takes)
	}
}

// decideRun decides the requests from i up to the next one that is something
// else, or late, all at once. It returns the index of that one.
func (b *batch) decideRun(local Local, out []byte, i int) ([]byte, int) {
	b.groups = b.groups[:0]
	end, how := i, asOwner
	for ; end < len(b.requests); end++ {
		q := &b.requests[end]
		if q.op == opReturn || q.op == opKeep || q.op == opPing || q.lateAt(b.now) {
			break
		}
		if q.op == opHot {
			q.ticket, q.quiet = b.router.own.denialLeases.quiet(q.group.Takes[0].Key)
		}
		how = max(how, q.how)
		b.groups = append(b.groups, q.group)
	}
	run := b.requests[i:end]
	wait := b.decide(local, run, how)
	for j := range b.groups {
		q, g := &b.requests[i+j], &b.groups[j]
		switch {
		case q.op == opDeferred && g.Deferred == 0:
			out = appendReleased(out, q.id, g)
		case q.op == opDeferred:
			out = appendWait(out, q.id, g, hopPause)
		case !undecided(g) || isDeferred(g):
			leased := q.op == opHot && q.quiet && b.router.own.denialLeases.lease(&g.Takes[0], q.ticket)
			out = appendAnswer(out, q.id, g, leased)
		case redirected(g):
			out = appendRedirect(out, q.id, g, b.router.table.Load().ownerMark)
		case g.Waits:
			out = appendWait(out, q.id, g, min(max(wait, hopPause), maxDenialLease))
		default:
			out = appendUndecided(out, q.id, g)
		}
	}
	return out, end
}

// decide decides the groups of run, in which the highest role is how. It returns how long to wait before what Waits is asked again.
func (b *batch) decide(local Local, run []request, how role) (wait time.Duration) {
	own := &b.router.own
	ctx, spans := own.startDecisions(run)
	wait = own.denialLeases.decide(local, b.groups)
	wait = max(wait, own.decideOnceResumed(local, b.groups, run, time.Time{}))
	wait = max(wait, own.decideApart(local, b.groups))
	if how != asOwner {
		q := relaying{own: own, ctx: ctx, local: local, groups: b.groups, run: run, asker: b.asker}
		wait = max(wait, q.answer())
	}
	endDecisions(spans, b.groups)
	return wait
}
