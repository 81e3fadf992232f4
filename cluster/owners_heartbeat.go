package cluster

import (
	"context"
	"time"

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
	old, peers := *o.otherMembers.byLife.Load(), make(map[view.Life]*otherMember, len(v.Members))
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
	o.otherMembers.byLife.Store(&peers)
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
	o.cohort.Go(func() error { o.beat(ctx, c); return nil })
}

// caller says who calls c.
func (o *Owners) caller(c *otherMember) *peerv1.Caller {
	return &peerv1.Caller{
		Version: connVersion, Cluster: o.Greeter.Self().Cluster, Id: o.Self.ID, Address: o.Self.Address, Incarnation: o.life().Incarnation,
		To: c.member.Incarnation, ToId: c.member.ID, View: o.number(),
	}
}

// beat asks another member for a sign of life, over and over, and for its view if that is newer.
func (o *Owners) beat(ctx context.Context, c *otherMember) {
	tick := time.NewTicker(heartbeatEvery)
	defer tick.Stop()
	for missed := 0; ; {
		missed++
		if o.beatOnce(ctx, c) {
			missed = 0
		} else if conn := c.dialed.Load(); missed%beatsMissed == 0 && conn != nil {
			_ = (*conn).Close() // it may be closed already
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.due:
		}
	}
}

func (o *Owners) beatOnce(ctx context.Context, c *otherMember) (answered bool) {
	caller, sent, asked := o.caller(c), time.Now(), o.Shard.Now()
	caller.To = 0 // to hear if it was restarted
	call, cancel := context.WithTimeout(ctx, callTimeout)
	resp, err := c.client.Heartbeat(call, &peerv1.HeartbeatRequest{Caller: caller, Reports: o.Reports().Append(nil), Findings: o.admission.say()})
	cancel()
	if err != nil {
		return false
	}
	c.compare(resp.GetClock(), asked, o.Shard.Now())
	o.hear(c.member.ID, resp.GetReports(), resp.GetFindings())
	c.answered.Store(resp.GetIncarnation())
	if !c.isItself() {
		return true // it was restarted, and may have forgotten a view
	}
	c.note(resp, sent)
	o.admission.answered(c.member.life())
	if resp.GetView() > caller.GetView() {
		o.catchUp(ctx, c.client, caller)
	}
	o.node.Answered(c.member.life(), resp.GetView(), sent)
	return true
}

// hear records what a member reports of all nodes, and what it has found of those that would join.
func (o *Owners) hear(from string, encoded []byte, findings []*peerv1.Finding) {
	o.admission.hear(from, findings)
	reports, err := view.ParseReports(encoded, o.params.Partitions)
	if err != nil {
		o.Logger.Error("reports of a member refused", "member", from, "error", err)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range reports {
		o.newest.Note(r)
	}
}

// catchUp fetches the view of a node that has said that it has a newer one, and adopts it.
func (o *Owners) catchUp(ctx context.Context, from peerv1.PeerClient, caller *peerv1.Caller) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := from.GetView(call, &peerv1.GetViewRequest{Caller: caller})
	if err != nil || len(resp.GetView()) == 0 {
		return
	}
	v, err := view.Unmarshal(resp.GetView())
	if err != nil {
		o.Logger.Error("view of another node refused", "error", err)
		return
	}
	o.Adopt(v)
}

// carrier returns what carries messages about copies to other nodes.
func (o *Owners) carrier() *replicaClient {
	return &replicaClient{
		partitions: o.params.Partitions,
		member: func(l view.Life) (peerv1.ReplicasClient, *peerv1.Caller, error) {
			c := o.otherMembers.of(l)
			if c == nil {
				return nil, nil, status.Errorf(codes.NotFound, "node %s, incarnation %d, is not named by the view", l.ID, l.Incarnation)
			}
			return c.replicas, o.caller(c), nil
		},
		reaches: o.otherMembers.Reached, reachesID: o.Router.Reaches, hasEnded: o.otherMembers.hasEnded,
		heard: func(ctx context.Context, l view.Life, number uint64) {
			if c := o.otherMembers.of(l); c != nil && number > o.number() {
				o.catchUp(ctx, c.client, o.caller(c))
			}
		},
	}
}
