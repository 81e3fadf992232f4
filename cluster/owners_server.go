package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// ownersServer answers other nodes for Owners.
type ownersServer struct {
	*inquiries
	unimplemented
	o *Owners
}

// unimplemented has the calls of a later version. It is one level deeper than inquiries, whose methods hide its own.
type unimplemented struct{ peerv1.UnimplementedPeerServer }

// Register registers what Owners answers to other nodes.
func (o *Owners) Register(s grpc.ServiceRegistrar) {
	peerv1.RegisterPeerServer(s, o.server())
	peerv1.RegisterReplicasServer(s, o.replicas())
}

func (o *Owners) server() ownersServer { return ownersServer{inquiries: &o.inquiries, o: o} }

func (o *Owners) replicas() *replicaServer {
	return &replicaServer{node: o.node, life: o.life, peers: o.carrier(), admit: o.server().admit, greet: o.Router.greet}
}

// admit refuses a call that is not for this process. If the caller has a newer view, it is adopted first.
func (s ownersServer) admit(ctx context.Context, c *peerv1.Caller) error {
	o := s.o
	if err := s.greet(ctx, c); err != nil {
		return err
	}
	switch {
	case c.GetTo() != 0 && c.GetTo() != o.life().Incarnation:
		return status.Errorf(codes.FailedPrecondition, "incarnation: %d is called, this is %d of %s", c.GetTo(), o.life().Incarnation, o.Self.ID)
	case c.GetView() <= o.number() || c.GetAddress() == "":
		return nil
	}
	answer := &peerv1.Caller{
		Version: connVersion, Cluster: c.GetCluster(), Id: o.Self.ID, Incarnation: o.life().Incarnation, ToId: c.GetId(), To: c.GetIncarnation(),
	}
	if known := o.knownMembers.of(view.Life{ID: c.GetId(), Incarnation: c.GetIncarnation()}); known != nil {
		o.catchUp(ctx, known.client, answer)
		return nil
	}
	conn, err := connect(o.Dial, c.GetId(), c.GetAddress(), nil)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "caller's address %q: %v", c.GetAddress(), err)
	}
	defer func() { _ = conn.Close() }()
	o.catchUp(ctx, peerv1.NewPeerClient(conn), answer)
	return nil
}

// Heartbeat implements peerv1.PeerServer. A caller with a newer view that this node does not reach is told in time what this node knows: it is
// a witness all the same.
func (s ownersServer) Heartbeat(ctx context.Context, req *peerv1.HeartbeatRequest) (*peerv1.HeartbeatResponse, error) {
	o := s.o
	asking, cancel := context.WithTimeout(ctx, callTimeout/2)
	err := s.admit(asking, req.GetCaller())
	if cancel(); err != nil {
		return nil, err
	}
	o.mu.Lock()
	confirmsNone := o.confirmsNone
	o.mu.Unlock()
	if confirmsNone {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s has left, and confirms no decision lease", o.Self.ID)
	}
	o.hear(view.Life{ID: req.GetCaller().GetId(), Incarnation: req.GetCaller().GetIncarnation()}, req.GetReports(), req.GetFindings(), req.GetFarewells())
	o.Router.hears(req.GetCaller().GetId())
	handover := o.HandoverStatus()
	answer := &peerv1.HeartbeatResponse{
		Reports: o.Reports().Append(nil), Findings: o.admission.say(), Clock: o.Shard.Now(),
		View: o.number(), Incarnation: o.life().Incarnation,
		Active: uint32(handover.Active), Wanted: uint32(handover.Wanted), Leaving: uint32(handover.Leaving),
		State: string(handover.State), Load: o.Load().wire(time.Now()), Farewells: wireFarewells(o.Farewells()),
	}
	o.knownMembers.account(answer, o.node.RanUntil())
	return answer, nil
}

// GetView implements peerv1.PeerServer.
func (s ownersServer) GetView(ctx context.Context, req *peerv1.GetViewRequest) (*peerv1.GetViewResponse, error) {
	if err := s.greet(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	v := s.o.node.View()
	if v == nil {
		return &peerv1.GetViewResponse{}, nil
	}
	b, err := view.Marshal(v)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &peerv1.GetViewResponse{View: b}, nil
}
