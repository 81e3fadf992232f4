package api

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Status is what a node knows of itself and its cluster. All methods are safe for
// concurrent use, and all but ImportView answer at once.
type Status interface {
	// Self is what the node says of itself.
	Self() cluster.Node
	// Ready reports whether the node is a member of its view and serves.
	Ready() bool
	// View is what the node routes by, nil before the first.
	View() *cluster.View
	// Nodes are the nodes that have a key in etcd, as last seen, sorted by id.
	Nodes() []cluster.Node
	// Reaches reports whether a member answers this node.
	Reaches(id string) bool
	// EtcdReachable reports whether etcd answered the last time.
	EtcdReachable() bool
	// Standing says how far the hand-over of partitions is on a node, as last heard; of one that
	// nothing was heard of it is zero.
	Standing(id string) cluster.Standing
	// Drain has the node hand over what it holds, or take partitions again. The error says
	// why it does not.
	Drain(cancel bool) error
	// ImportView writes what the node knows of the cluster into an etcd that has lost it, or
	// says what it would write. The error is ErrNothingLost, wrapped, if it has not.
	ImportView(ctx context.Context, dryRun bool) (*weirv1.ImportViewResponse, error)
	// Rules are the rules in use.
	Rules() *rules.Set
	// Counters is how many counters live on this node.
	Counters() int
	// Problems says what an operator should look at, one sentence each.
	Problems() []string
}

// healthServer implements weirv1.RateLimiterHealthServer.
type healthServer struct {
	weirv1.UnimplementedRateLimiterHealthServer
	limiter *Limiter
	status  Status
}

// GetHealthStatus implements weirv1.RateLimiterHealthServer.
func (s healthServer) GetHealthStatus(context.Context, *weirv1.GetHealthStatusRequest) (*weirv1.GetHealthStatusResponse, error) {
	self, set, problems := s.status.Self(), s.status.Rules(), s.status.Problems()
	resp := &weirv1.GetHealthStatusResponse{
		NodeId:        self.ID,
		Incarnation:   self.Incarnation,
		Version:       self.Version,
		Ready:         s.status.Ready(),
		Degraded:      len(problems) > 0,
		Reasons:       problems,
		EtcdReachable: s.status.EtcdReachable(),
		RuleRevision:  set.Revision(),
		RuleCount:     uint32(set.Len()),
		Counters:      uint64(s.status.Counters()),
	}
	if v := s.status.View(); v != nil {
		resp.View = v.Number
		for _, m := range v.Members {
			resp.Members = append(resp.Members, &weirv1.Member{
				Id: m.ID, Address: m.Address, Incarnation: m.Incarnation, Reachable: s.status.Reaches(m.ID),
			})
		}
	}
	return resp, nil
}

// clusterServer implements weirv1.ClusterServer.
type clusterServer struct {
	weirv1.UnimplementedClusterServer
	status Status
}

// ListNodes implements weirv1.ClusterServer.
func (s clusterServer) ListNodes(context.Context, *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	resp := &weirv1.ListNodesResponse{}
	self, byID := s.status.Self().ID, make(map[string]*weirv1.Node)
	if v := s.status.View(); v != nil {
		resp.View = v.Number
		owned, _ := shares(v)
		for i, m := range v.Members {
			byID[m.ID] = &weirv1.Node{
				Id: m.ID, Address: m.Address, Incarnation: m.Incarnation,
				Member: true, Reachable: s.status.Reaches(m.ID), Partitions: owned[i],
			}
		}
	}
	for _, n := range s.status.Nodes() {
		node := byID[n.ID]
		if node == nil {
			node = &weirv1.Node{Id: n.ID, Reachable: n.ID == self}
			byID[n.ID] = node
		}
		node.Address, node.Incarnation = n.Address, n.Incarnation
		node.State, node.Version, node.RuleRevision = wireState[n.State], n.Version, n.RuleRevision
	}
	for id, node := range byID {
		standing := s.status.Standing(id)
		node.Held, node.Wanted, node.Leaving = uint32(standing.Held), uint32(standing.Wanted), uint32(standing.Leaving)
		resp.Nodes = append(resp.Nodes, node)
	}
	slices.SortFunc(resp.Nodes, func(a, b *weirv1.Node) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return resp, nil
}

var wireState = map[cluster.State]weirv1.NodeState{
	cluster.Joining: weirv1.NodeState_NODE_STATE_JOINING,
	cluster.Ready:   weirv1.NodeState_NODE_STATE_READY,
	cluster.Leaving: weirv1.NodeState_NODE_STATE_LEAVING,
	cluster.Left:    weirv1.NodeState_NODE_STATE_LEFT,
}

// DrainNode implements weirv1.ClusterServer.
func (s clusterServer) DrainNode(_ context.Context, req *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	self := s.status.Self().ID
	if req.GetNodeId() != self {
		return nil, invalid("node_id", "%q is not the asked node, which is %q", req.GetNodeId(), self)
	}
	if err := s.status.Drain(req.GetCancel()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	standing := s.status.Standing(self)
	return &weirv1.DrainNodeResponse{Held: uint32(standing.Held + standing.Leaving)}, nil
}

// GetRing implements weirv1.ClusterServer.
func (s clusterServer) GetRing(_ context.Context, req *weirv1.GetRingRequest) (*weirv1.GetRingResponse, error) {
	v := s.status.View()
	if v == nil {
		return &weirv1.GetRingResponse{}, nil
	}
	resp := &weirv1.GetRingResponse{View: v.Number, Partitions: v.Ring.Partitions()}
	owned, standby := shares(v)
	for i, m := range v.Members {
		resp.Shares = append(resp.Shares, &weirv1.RingShare{Id: m.ID, Owned: owned[i], Standby: standby[i]})
	}
	if req.GetTables() {
		for part := range v.Ring.Partitions() {
			resp.Owners = append(resp.Owners, uint32(v.Ring.Owner(part)))
			resp.Standbys = append(resp.Standbys, uint32(v.Ring.Standby(part)))
		}
	}
	return resp, nil
}

// shares counts the partitions that each member owns, and is standby for. Nobody is for his own.
func shares(v *cluster.View) (owned, standby []uint32) {
	owned = make([]uint32, len(v.Members))
	standby = make([]uint32, len(v.Members))
	for part := range v.Ring.Partitions() {
		owner, other := v.Ring.Owner(part), v.Ring.Standby(part)
		owned[owner]++
		if other != owner {
			standby[other]++
		}
	}
	return owned, standby
}
