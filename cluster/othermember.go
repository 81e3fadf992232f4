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
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// otherMember is another member, as Ownership calls it: over gRPC, apart from the connections on which
// checks are asked.
type otherMember struct {
	member   Member
	conn     *grpc.ClientConn
	client   peerv1.PeerClient
	replicas peerv1.ReplicasClient // nil where views name ideal owners
	stop     context.CancelFunc    // ends its goroutines; nil before they run
	due      chan struct{}         // full when it is time to replicate what has changed
	hurry    chan struct{}         // full when something should be replicated at once
	feeding  chan struct{}         // full while what has changed for it is collected and sent

	memberStatus

	awaited atomic.Int64 // since when answers wait for it, as strictAcks counts; 0 if none does
	missing atomic.Bool  // whether they wait for it no more

	answered atomic.Uint64 // the incarnation that has answered last under its id, 0 before

	lag feedLag // of what it was sent as a standby

	dialed atomic.Pointer[net.Conn] // what conn has connected last; nil before
}

func (c *otherMember) party() party { return party{c.member.ID, c.member.Incarnation} }

// Times of connecting.
const (
	redialFirst = 50 * time.Millisecond
	redialMost  = time.Second
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

// meet gives each other member of the view an otherMember, and forgets those that are no members any more.
func (k *Ownership) meet(v *View) {
	if k.ctx != nil && k.ctx.Err() != nil {
		return // Run has left them all
	}
	old := k.peers
	k.peers = make(map[string]*otherMember, len(v.Members))
	var others []string
	for _, m := range v.Members {
		if m.ID == k.Self.ID {
			continue
		}
		others = append(others, m.ID)
		if c := old[m.ID]; c != nil && c.member.endpoint() == m.endpoint() && c.member.Incarnation == m.Incarnation {
			c.lag.end() // it may be the standby of other partitions now
			k.peers[m.ID] = c
			continue
		}
		c := &otherMember{member: m, due: make(chan struct{}, 1), hurry: make(chan struct{}, 1), feeding: make(chan struct{}, 1)}
		conn, err := connect(k.Dial, m.ID, m.Address, &c.dialed)
		if err != nil {
			k.Logger.Error("member cannot be spoken to", "member", m.ID, "address", m.Address, "error", err)
			continue
		}
		c.conn, c.client = conn, measuredPeer{peerv1.NewPeerClient(conn), &c.lag, k.metrics.feedDuration, k.metrics.feedFailures}
		k.peers[m.ID] = c
		k.attend(c)
	}
	for id, c := range old {
		if k.peers[id] != c {
			c.leave()
		}
		if k.peers[id] == nil {
			delete(k.processes, id)
		}
	}
	i, member := v.Index(k.Self.ID)
	k.lease.view(others, member && v.Members[i].Incarnation == k.ownParty.incarnation)
}

// attend starts the goroutines that serve another member, once Ownership runs.
func (k *Ownership) attend(c *otherMember) {
	if k.ctx == nil || k.ctx.Err() != nil || c.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(k.ctx)
	c.stop = stop
	k.cohort.Go(func() error { k.beat(ctx, c); return nil })
	k.cohort.Go(func() error { k.replicate(ctx, c); return nil })
}

// leave ends what is done for another member.
func (c *otherMember) leave() {
	if c.stop != nil {
		c.stop()
	}
	_ = c.conn.Close() // it says only that it was closed before
}

// caller says who calls c.
func (k *Ownership) caller(c *otherMember) *peerv1.Caller {
	k.mu.Lock()
	defer k.mu.Unlock()
	caller := &peerv1.Caller{
		Version: connVersion, Cluster: k.Greeter.Self().Cluster, Id: k.Self.ID, Address: k.Self.Address, Incarnation: k.ownParty.incarnation,
		To: c.member.Incarnation, ToId: c.member.ID,
	}
	if k.view != nil {
		caller.View = k.view.Number
	}
	return caller
}

// beat asks another member for a sign of life, over and over, and for its view if that is newer.
func (k *Ownership) beat(ctx context.Context, c *otherMember) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for missed := 0; ; {
		missed++
		if k.beatOnce(ctx, c) {
			missed = 0
		} else if conn := c.dialed.Load(); missed%beatsMissed == 0 && conn != nil {
			_ = (*conn).Close() // it may be closed already
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (k *Ownership) beatOnce(ctx context.Context, c *otherMember) (answered bool) {
	caller, sent := k.caller(c), time.Now()
	caller.To = 0 // to hear if it was restarted
	asked := k.Shard.Now()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	resp, err := c.client.Heartbeat(call, &peerv1.HeartbeatRequest{Caller: caller, Adoptions: k.tell(), Findings: k.admission.say()})
	cancel()
	if err != nil {
		return false
	}
	k.answers(c, resp.GetIncarnation())
	c.compare(resp.GetClock(), asked, k.Shard.Now())
	k.learn(Life{c.member.ID, resp.GetIncarnation()}, resp.GetView(), resp.GetAdoptions())
	k.admission.hear(c.member.ID, resp.GetFindings())
	restarted := resp.GetIncarnation() != c.member.Incarnation
	if !restarted {
		k.admission.answered(c.member.life())
	}
	if resp.GetView() > caller.GetView() {
		k.catchUp(ctx, c.client, caller)
		return true // it knew a newer view: that is no witness
	}
	if restarted {
		return true // nor is who may have forgotten one
	}
	c.note(resp, sent)
	renewed := k.Renewed()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.peers[c.member.ID] == c {
		k.lease.look(time.Now())
		k.lease.answered(c.member.ID, sent)
		k.witness(renewed)
	}
	return true
}

// answers records which process answers for a member. If that was restarted it is sent
// what it stands by for from the beginning.
func (k *Ownership) answers(c *otherMember, incarnation uint64) {
	k.mu.Lock()
	before, met := k.processes[c.member.ID]
	if k.peers[c.member.ID] == c {
		k.processes[c.member.ID] = incarnation
	}
	k.mu.Unlock()
	if met && before != incarnation {
		k.restart(c, k.standbyFor(c))
	}
}

// catchUp fetches the view of a node that has said that it has a newer one, and adopts it.
func (k *Ownership) catchUp(ctx context.Context, from peerv1.PeerClient, caller *peerv1.Caller) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := from.GetView(call, &peerv1.GetViewRequest{Caller: caller})
	if err != nil || len(resp.GetView()) == 0 {
		return
	}
	v, err := UnmarshalView(resp.GetView())
	if err != nil {
		k.Logger.Error("view of another node refused", "error", err)
		return
	}
	k.Adopt(v)
}

func (c *otherMember) locate(ctx context.Context, k *Ownership, partitions []uint32, patience time.Duration) (*peerv1.LocateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.client.Locate(ctx, &peerv1.LocateRequest{Caller: k.caller(c), Partitions: partitions})
}

// nudge tells another member to fetch what owner has sealed for it.
func (c *otherMember) nudge(ctx context.Context, k *Ownership, p uint32, owner string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.client.Locate(ctx, &peerv1.LocateRequest{
		Caller: k.caller(c), Fetch: []*peerv1.Fetch{{Partition: p, Owner: owner}},
	})
	if err != nil {
		k.Logger.Debug("member not told to fetch a partition", "member", c.member.ID, "partition", p, "error", err)
	}
}

func (c *otherMember) confirm(ctx context.Context, k *Ownership, p uint32, term Term) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := c.client.Confirm(ctx, &peerv1.ConfirmRequest{Caller: k.caller(c), Partition: p, Term: uint64(term)})
	return err
}
