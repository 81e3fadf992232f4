package cluster

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// meet has an otherMember for each other life that v names. o.mu is held.
func (o *Owners) meet(v *view.View) {
	if o.ctx != nil && o.ctx.Err() != nil {
		return // Run has left them all
	}
	old, peers := *o.knownMembers.byLife.Load(), make(map[view.Life]*otherMember, len(v.Members))
	for _, m := range v.Members {
		if m.Life == o.life() {
			continue
		}
		c := old[m.Life]
		if c == nil || c.member.Address != m.Address {
			c = o.newMember(m)
		}
		if c != nil {
			peers[m.Life] = c
			o.attend(c)
		}
	}
	o.knownMembers.byLife.Store(&peers)
	for l, c := range old {
		if peers[l] != c {
			c.leave()
		}
	}
}

// newMember returns another member that is not called yet, nil if it cannot be.
func (o *Owners) newMember(m view.Member) *otherMember {
	c := &otherMember{member: Member{ID: m.ID, Address: m.Address, Incarnation: m.Incarnation}, due: make(chan struct{}, 1)}
	conn, err := connect(o.Dial, m.ID, m.Address, &c.dialed)
	if err != nil {
		o.Logger.Error("member cannot be spoken to", "member", m.ID, "address", m.Address, "error", err)
		return nil
	}
	c.conn, c.client, c.replicas = conn, peerv1.NewPeerClient(conn), measuredReplicas{peerv1.NewReplicasClient(conn), &c.lag, o.metrics.feedDuration, o.metrics.feedFailures}
	return c
}

// attend starts the goroutine that serves another member, once Owners runs. o.mu is held.
func (o *Owners) attend(c *otherMember) {
	if o.ctx == nil || o.ctx.Err() != nil || c.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(o.ctx)
	c.stop = stop
	o.running.Go(func() { o.beat(ctx, c) })
}

// carrier returns what carries messages about copies to other nodes.
func (o *Owners) carrier() *replicaClient {
	return &replicaClient{
		partitions: o.params.Partitions,
		member: func(l view.Life) (peerv1.ReplicasClient, *peerv1.Caller, error) {
			c := o.knownMembers.of(l)
			if c == nil {
				return nil, nil, status.Errorf(codes.NotFound, "node %s, incarnation %d, is not named by the view", l.ID, l.Incarnation)
			}
			return c.replicas, o.caller(c), nil
		},
		reaches: o.knownMembers.Reached, reachesID: o.Router.Reaches, hasEnded: o.knownMembers.hasEnded, relays: o.knownMembers.relaysTo,
		isSilent: func(l view.Life) *atomic.Bool {
			if c := o.knownMembers.of(l); c != nil {
				return &c.isSilent
			}
			return new(atomic.Bool)
		},
		heard: func(ctx context.Context, l view.Life, number uint64) {
			if c := o.knownMembers.of(l); c != nil && number > o.number() {
				o.catchUp(ctx, c.client, o.caller(c))
			}
		},
	}
}
