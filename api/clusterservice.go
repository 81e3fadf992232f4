package api

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/audit"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// clusterServer implements weirv1.ClusterServer.
type clusterServer struct {
	weirv1.UnsafeClusterServer // the compiler names a method that is missing
	status                     Status
	rules                      RuleStore
	checks                     *check.Checker // counts the limits of rules
	audit                      *audit.Log     // of changes; nil: none
	port                       Port
	tokens                     AccessTokenStore // nil: there are none
}

// ListNodes implements weirv1.ClusterServer.
func (s clusterServer) ListNodes(context.Context, *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	resp := &weirv1.ListNodesResponse{}
	self, byID := s.status.Self().ID, make(map[string]*weirv1.Node)
	members := make(map[string]uint64) // their incarnations
	if v := s.status.View(); v != nil {
		resp.View = v.Number
		owned, _ := shares(v)
		for i, m := range v.Members {
			if m.Gone {
				continue
			}
			members[m.ID] = m.Incarnation
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
		node.State, node.Version, node.RulesHash = wireState[n.State], n.Version, n.RulesHash
		if s.port != PublicPort {
			node.AdminAddress = n.Admin
		}
		// It registers as ready to become a member: until it is, /readyz of it says no.
		if n.State == cluster.Ready {
			node.State = s.ownState(n, members[n.ID] == n.Incarnation, node.GetReachable())
		}
	}
	for _, u := range s.status.Unreached() {
		if node := byID[u.Node.ID]; node != nil {
			node.Unreached = u.Describe()
		}
	}
	for id, node := range byID {
		handover := reconciled(s.status.HandoverStatus(id), int(node.GetPartitions()))
		node.Active, node.Wanted, node.Leaving = uint32(handover.Active), uint32(handover.Wanted), uint32(handover.Leaving)
		resp.Nodes = append(resp.Nodes, node)
	}
	slices.SortFunc(resp.Nodes, func(a, b *weirv1.Node) int { return cmp.Compare(a.GetId(), b.GetId()) })
	return resp, nil
}

// ownState is the state of a node that has registered as ready, by the node's own word, which is that of its /readyz. Of a
// node that has not been heard yet it is JOINING, unless that node is not reached either.
func (s clusterServer) ownState(n cluster.Node, member, reachable bool) weirv1.NodeState {
	state := s.status.HandoverStatus(n.ID).State
	switch {
	case !member:
		state = cluster.Joining
	case state == "" && reachable:
		state = cluster.Joining
	case state == "":
		state = cluster.Ready
	}
	return wireState[state]
}

// reconciled returns the handover status of a node in the view in which it owns that number of partitions.
// The status s may be of an earlier view, or zero if the node has reported none. Partitions held
// above owned have still to leave the node, and those missing have still to come, as have those that later views are to give it.
func reconciled(s cluster.HandoverStatus, owned int) cluster.HandoverStatus {
	if s.Active > owned {
		s.Active, s.Leaving = owned, s.Leaving+s.Active-owned
	}
	s.Wanted = max(s.Wanted, owned-s.Active)
	return s
}

var wireState = map[cluster.State]weirv1.NodeState{
	cluster.Joining: weirv1.NodeState_NODE_STATE_JOINING,
	cluster.Ready:   weirv1.NodeState_NODE_STATE_READY,
	cluster.Leaving: weirv1.NodeState_NODE_STATE_LEAVING,
	cluster.Left:    weirv1.NodeState_NODE_STATE_LEFT,
}

// drainNode is DrainNode without the audit log.
func (s clusterServer) drainNode(req *weirv1.DrainNodeRequest) (*weirv1.DrainNodeResponse, error) {
	self := s.status.Self().ID
	if req.GetNodeId() != self {
		return nil, wire.Invalid("node_id", "%q is not the asked node, which is %q", req.GetNodeId(), self)
	}
	if err := s.status.Drain(req.GetCancel()); err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	handover := s.status.HandoverStatus(self)
	return &weirv1.DrainNodeResponse{ToHandOver: uint32(handover.Active + handover.Leaving)}, nil
}

// removeNode is RemoveNode without the audit log.
func (s clusterServer) removeNode(ctx context.Context, req *weirv1.RemoveNodeRequest) (*weirv1.RemoveNodeResponse, error) {
	id := req.GetNodeId()
	if id == "" {
		return nil, wire.Invalid("node_id", "it is missing")
	}
	v, err := s.status.Remove(ctx, id)
	switch {
	case errors.Is(err, cluster.ErrNoMember):
		return nil, status.Errorf(codes.NotFound, "node_id: %v", err)
	case errors.Is(err, cluster.ErrReached), errors.Is(err, cluster.ErrLastMember):
		return nil, status.Errorf(codes.FailedPrecondition, "node_id: %v", err)
	case err != nil:
		return nil, status.Errorf(codes.Unavailable, "node_id: %q is not removed: %v", id, err)
	}
	return &weirv1.RemoveNodeResponse{View: v.Number, Member: v.IsMember(id)}, nil
}

// GetOptions implements weirv1.ClusterServer.
func (s clusterServer) GetOptions(context.Context, *weirv1.GetOptionsRequest) (*weirv1.GetOptionsResponse, error) {
	return &weirv1.GetOptionsResponse{NodeId: s.status.Self().ID, Options: s.status.Options()}, nil
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

// shares counts the partitions that each member owns, and is standby for. No member is the standby of its
// own.
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
