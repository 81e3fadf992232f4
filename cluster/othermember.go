package cluster

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// otherMember is another member, as Owners calls it: over gRPC, apart from the connections on which
// checks are asked.
type otherMember struct {
	member   Member
	conn     *grpc.ClientConn
	client   peerv1.PeerClient
	replicas peerv1.ReplicasClient
	stop     context.CancelFunc // ends its goroutine; nil before it runs
	due      chan struct{}      // full when a heartbeat is due at once

	memberStatus

	awaited atomic.Int64 // since when answers wait for it, as strictAcks counts; 0 if none does
	missing atomic.Bool  // whether they wait for it no more

	answered atomic.Uint64 // the incarnation that has answered last under its id, 0 before
	asked    atomic.Int64  // when the last heartbeat was due, in Unix nanoseconds; 0 before

	lag      feedLag     // of what it was sent as a standby
	isSilent atomic.Bool // it did not answer the last changes that this node has sent it directly

	dialed atomic.Pointer[net.Conn] // what conn has connected last; nil before
}

// Times of connecting.
const (
	redialFirst = 50 * time.Millisecond
	redialMost  = probeEvery // a node that is back is known to be another life by then
)

// beatsMissed in a row have the connection made again. One on which packets were lost for a while
// may go on only after as long again, when TCP sends them once more.
const beatsMissed = 3

// connect returns a connection to the gRPC port of a node, which is made when it is used. What it
// is made by is stored in dialed, unless that is nil. The dialer connects to an address.
func connect(dialer func(ctx context.Context, address string) (net.Conn, error), id, address string, dialed *atomic.Pointer[net.Conn]) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := dialer(ctx, address)
		if err != nil {
			return nil, err
		}
		if err := checkConn(conn, Identity{ID: id}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		if dialed != nil {
			dialed.Store(&conn)
		}
		return conn, nil
	}
	return grpc.NewClient("passthrough:///"+url.PathEscape(address),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: redialFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: redialMost},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
	)
}

// beatSoon has it sent a heartbeat at once.
func (c *otherMember) beatSoon() { fill(c.due) }

// askAgain has it sent a heartbeat, if none was for wordWithin: it may say something else by now.
func (c *otherMember) askAgain() {
	if time.Since(time.Unix(0, c.asked.Load())) >= wordWithin {
		c.beatSoon()
	}
}

// connects waits for a connection for callTimeout at most, and reports whether there is one.
func (c *otherMember) connects(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		s := c.conn.GetState()
		if s == connectivity.Ready {
			return true
		}
		c.conn.Connect() // if it is idle
		if !c.conn.WaitForStateChange(ctx, s) {
			return false
		}
	}
}

// isItself reports whether no other life of its id has answered last.
func (c *otherMember) isItself() bool {
	answered := c.answered.Load()
	return answered == 0 || answered == c.member.Incarnation
}

// leave ends what is done for another member.
func (c *otherMember) leave() {
	if c.stop != nil {
		c.stop()
	}
	_ = c.conn.Close() // it says only that it was closed before
}
