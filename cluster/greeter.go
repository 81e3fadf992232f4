package cluster

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// Greeter says to other nodes who this node is, and remembers strangers: nodes that are not the ones
// that were meant, or that mean another node than this one. It is safe for concurrent use.
type Greeter struct {
	log   *slog.Logger
	clock func() int64

	mu        sync.Mutex
	self      Identity               // guarded by mu
	strangers map[stranger]time.Time // when each was met last; guarded by mu; <= maxStrangers
}

// NewGreeter returns the greeter of the node self, which logs strangers. Clock is that by which the node decides, in Unix nanoseconds. At 0 it says no time.
func NewGreeter(self Identity, clock func() int64, log *slog.Logger) *Greeter {
	return &Greeter{log: log, clock: clock, self: self, strangers: make(map[stranger]time.Time)}
}

// Self returns who this node is.
func (g *Greeter) Self() Identity {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.self
}

// become changes this node's incarnation.
func (g *Greeter) become(incarnation uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.self.Incarnation = incarnation
}

// Dialer opens a connection to a member, if the node that answers at its address is that member.
type Dialer func(ctx context.Context, to Member) (net.Conn, error)

// GreetingDialer returns the Dialer that connects by connect, and says hello in the name of g.
func GreetingDialer(connect func(ctx context.Context, address string) (net.Conn, error), g *Greeter) Dialer {
	return func(ctx context.Context, to Member) (net.Conn, error) {
		conn, answer, err := g.greet(ctx, connect, to)
		if err != nil {
			return nil, err
		}
		return &greetedConn{conn, answer}, nil
	}
}

// greetedConn is a connection to a node that has said hello. Two of them are compared by their addresses.
type greetedConn struct {
	net.Conn
	introduction
}

// introduction is what a node says of itself in its hello.
type introduction struct {
	ahead        time.Duration // by how much its clock is ahead
	minorVersion uint8         // up to which it reads what was added to connVersion
	incarnation  uint64        // 0 if no registry has counted it
}

// greet connects to a member and says hello. It closes the connection and returns an error if another
// node than the member answers. It returns what the member says of itself.
func (g *Greeter) greet(ctx context.Context, connect func(ctx context.Context, address string) (net.Conn, error), to Member) (conn net.Conn, answer introduction, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if conn, err = connect(ctx, to.Address); err != nil {
		return nil, answer, err
	}
	answer, err = g.exchange(ctx, conn, to)
	if err != nil {
		return nil, answer, errors.Join(err, conn.Close())
	}
	return conn, answer, nil
}

// Knock connects to a member and hangs up. The error is nil if that member answers at its address. It returns by how much that member's clock is
// ahead of this node's at least, negative if it is behind, and 0 if it does not say.
func (g *Greeter) Knock(ctx context.Context, connect func(ctx context.Context, address string) (net.Conn, error), to Member) (ahead time.Duration, err error) {
	conn, answer, err := g.greet(ctx, connect, to)
	if err == nil {
		_ = conn.Close() // nothing was asked
	}
	return answer.ahead, err
}

// exchange says hello to the node at the other end of conn, and returns what that says of itself.
func (g *Greeter) exchange(ctx context.Context, conn net.Conn, to Member) (said introduction, err error) {
	ended := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // nothing waits for the other node any more
	self := g.Self()
	meant := Identity{Cluster: self.Cluster, ID: to.ID, Incarnation: to.Incarnation}
	asked := g.clock()
	if err := writeHello(conn, hello{from: self, to: meant, clock: asked, minorVersion: connMinorVersion}); err != nil {
		return said, err
	}
	if err := readPreface(conn); err != nil {
		if version, ok := errors.AsType[connVersionError](err); ok {
			s := stranger{met: Identity{Cluster: self.Cluster, ID: to.ID}, address: to.Address, version: version}
			g.note(s)
			return said, s.error(self)
		}
		return said, err
	}
	answer, err := readHello(conn)
	if err != nil {
		return said, err
	}
	if !ended() {
		return said, ctx.Err()
	}
	if err := checkConn(conn, answer.from); err != nil {
		return said, err
	}
	if !answer.from.isMeantBy(meant) {
		s := stranger{met: answer.from, instead: meant, address: to.Address}
		g.note(s)
		return said, s.error(self)
	}
	said = introduction{aheadOf(answer.clock, asked, g.clock()), answer.minorVersion, answer.from.Incarnation}
	if said.incarnation >= view.Uncounted {
		said.incarnation = 0
	}
	return said, nil
}

// refuseVersion refuses a node that speaks another version, and says this node's: the other one names it then, too.
func (g *Greeter) refuseVersion(conn net.Conn, version connVersionError) error {
	if _, err := io.WriteString(conn, connPreface); err != nil {
		return err
	}
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	s := stranger{met: Identity{Cluster: g.Self().Cluster}, address: address, version: version}
	g.note(s)
	return s.error(g.Self())
}

// answer reads a hello, of which the preface was read, and says hello in turn. It returns the id of the other node. The error says why the connection ends.
func (g *Greeter) answer(conn net.Conn) (id string, err error) {
	h, err := readHello(conn)
	if err != nil {
		return "", err
	}
	if err := checkConn(conn, h.from); err != nil {
		return "", err
	}
	self := g.Self()
	if err := writeHello(conn, hello{from: self, to: h.from, clock: g.clock(), minorVersion: connMinorVersion}); err != nil {
		return "", err
	}
	return h.from.ID, g.admit(h.from, h.to)
}

// admit refuses a node of another cluster, or one that means another node than this one.
func (g *Greeter) admit(from, meant Identity) error {
	self := g.Self()
	if from.Cluster == self.Cluster && self.isMeantBy(meant) {
		return nil
	}
	s := stranger{met: from, instead: meant}
	g.note(s)
	return s.error(self)
}

// note remembers a stranger, and logs it if it was not met before.
func (g *Greeter) note(s stranger) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !s.isEarlier(g.self) {
		s.instead.Incarnation = 0 // the caller means another node
	}
	if _, met := g.strangers[s]; !met {
		maps.DeleteFunc(g.strangers, func(_ stranger, last time.Time) bool { return now.Sub(last) >= strangerForgot })
		if len(g.strangers) >= maxStrangers {
			return
		}
		g.log.Warn("a connection leads to the wrong node; check the addresses that the nodes advertise", "reason", s.describe(g.self))
	}
	g.strangers[s] = now
}

// Strangers says which strangers this node has met in the last seconds, one sentence each, sorted.
func (g *Greeter) Strangers() (sentences []string) {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, last := range g.strangers {
		if now.Sub(last) < strangerNamed {
			sentences = append(sentences, s.describe(g.self))
		}
	}
	slices.Sort(sentences)
	return sentences
}
