package cluster

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/shard"
)

// Server answers other nodes from the local counters. It asks others only for what it
// is asked as a standby, and asks them for their own: a question travels two hops at
// most, whatever views the nodes have.
type Server struct {
	local    Local
	promises *Promises
	router   *Router

	mu     sync.Mutex
	links  map[net.Conn]struct{} // guarded by mu; <= maxLinks
	closed bool                  // takes no more; guarded by mu
	served sync.WaitGroup        // grows only until closed
}

// NewServer returns the server for the counters behind local, of which it makes promises.
// The router of the same node knows where the others are.
func NewServer(local Local, p *Promises, r *Router) *Server {
	return &Server{local: local, promises: p, router: r, links: make(map[net.Conn]struct{})}
}

// Credentials makes a gRPC server hand the links that come in on its port over to
// s. Everything else is secured by inner.
func (s *Server) Credentials(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return linkCredentials{inner, s}
}

type linkCredentials struct {
	credentials.TransportCredentials
	server *Server
}

// ServerHandshake implements credentials.TransportCredentials. gRPC calls it in a
// goroutine of the connection, which it gives a deadline.
func (c linkCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	var first [1]byte
	if _, err := io.ReadFull(conn, first[:]); err != nil {
		return nil, nil, err
	}
	if first[0] != linkPreface[0] {
		return c.TransportCredentials.ServerHandshake(&rewound{Conn: conn, first: first})
	}
	var rest [len(linkPreface) - 1]byte
	if _, err := io.ReadFull(conn, rest[:]); err != nil {
		return nil, nil, err
	}
	if string(rest[:]) != linkPreface[1:] {
		return nil, nil, fmt.Errorf("connection begins with %q", string(first[:])+string(rest[:]))
	}
	if !c.server.adopt(conn) {
		return nil, nil, fmt.Errorf("%d links are open already, or the server is closed", maxLinks)
	}
	return nil, nil, credentials.ErrConnDispatched
}

// Clone implements credentials.TransportCredentials.
func (c linkCredentials) Clone() credentials.TransportCredentials {
	return linkCredentials{c.TransportCredentials.Clone(), c.server}
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

// adopt serves a link until it ends. It is false if there is no room for it.
func (s *Server) adopt(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.links) == maxLinks {
		return false
	}
	s.links[conn] = struct{}{}
	s.served.Go(func() {
		// Why a link ends is of no interest here: whoever opened it opens another.
		_ = s.serve(conn)
		s.mu.Lock()
		delete(s.links, conn)
		s.mu.Unlock()
		_ = conn.Close()
	})
	return true
}

// Shutdown takes no more links and waits until the others have left those that there
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

// Close ends all links, and waits for that.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for conn := range s.links {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.served.Wait()
}

// serve reads a frame, decides all of it, and writes one frame of answers, over and
// over.
func (s *Server) serve(conn net.Conn) error {
	frames := newFrameReader(conn, maxFrame)
	// No deadline of the connection: gRPC, which has accepted it, takes that away when the handshake is over.
	idle, alive := time.AfterFunc(linkIdle, func() { _ = conn.Close() }), time.Now()
	defer idle.Stop()
	for {
		if now := time.Now(); now.Sub(alive) > linkIdle/4 {
			idle.Reset(linkIdle)
			alive = now
		}
		frame, err := frames.next()
		if err != nil {
			return err
		}
		b := newBatch(s.promises, s.router)
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
	promises  *Promises
	router    *Router
	takes     []shard.Take
	questions []question
	groups    []shard.Group
	out       []byte // the frame of answers
}

var batches = sync.Pool{New: func() any { return new(batch) }}

func newBatch(p *Promises, r *Router) *batch {
	b := batches.Get().(*batch)
	b.promises, b.router = p, r
	return b
}

// answer decides all questions of a frame and returns the frame of answers, in out's
// memory. A frame with an error in it is refused as a whole, before anything is
// counted.
func (b *batch) answer(local Local, out, frame []byte) ([]byte, error) {
	b.takes, b.questions = b.takes[:0], b.questions[:0]
	r := openFrame(frame)
	for r.more() {
		var q question
		q, b.takes = r.question(b.takes)
		b.questions = append(b.questions, q)
	}
	if r.err != nil {
		return nil, r.err
	}
	out = newFrame(out)
	for i := 0; i < len(b.questions); {
		q := &b.questions[i]
		switch q.op {
		case opReturn:
			b.promises.giveBack(local, q.group.Takes)
			i++
		case opPing:
			out = appendAnswer(out, q.id, &shard.Group{Allowed: true}, false)
			i++
		default:
			out, i = b.decideRun(local, out, i)
		}
	}
	return out, nil
}

// decideRun decides the questions from i up to the next one that is something
// else, all at once. It returns the index of that one.
func (b *batch) decideRun(local Local, out []byte, i int) ([]byte, int) {
	b.groups = b.groups[:0]
	end, how := i, asOwner
	for ; end < len(b.questions) && b.questions[end].op != opReturn && b.questions[end].op != opPing; end++ {
		q := &b.questions[end]
		if q.op == opHot {
			q.ticket, q.quiet = b.promises.quiet(q.group.Takes[0].Key)
		}
		how = max(how, q.how)
		b.groups = append(b.groups, q.group)
	}
	wait := b.promises.decide(local, b.groups)
	wait = max(wait, b.router.decideOnceHome(local, b.groups, time.Time{}))
	if how != asOwner {
		wait = max(wait, b.router.answerAsStandby(local, b.groups, func(j int) asked { return b.questions[i+j].how }, time.Time{}))
	}
	for j := range b.groups {
		q, g := &b.questions[i+j], &b.groups[j]
		switch {
		case q.op == opHeld && g.Held == 0:
			out = appendReleased(out, q.id, g)
		case q.op == opHeld:
			out = appendWait(out, q.id, g, hopPause)
		case !undecided(g) || isHeld(g):
			promised := q.op == opHot && q.quiet && b.promises.promise(&g.Takes[0], q.ticket)
			out = appendAnswer(out, q.id, g, promised)
		case moved(g):
			out = appendMoved(out, q.id, g, b.router.holder)
		case g.Waits:
			out = appendWait(out, q.id, g, min(max(wait, hopPause), maxPromise))
		default:
			out = appendUnanswered(out, q.id, g)
		}
	}
	return out, end
}
