package cluster

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// replicaServer answers other nodes about copies of partitions.
type replicaServer struct {
	peerv1.UnimplementedReplicasServer
	node *ownership.Node
	// life returns this life of the node.
	life func() view.Life
	// peers passes on what others send through this node.
	peers *replicaClient
	// admit refuses a call that is not for this process, and has the caller's view adopted if that is newer.
	admit func(ctx context.Context, c *peerv1.Caller) error
	// greet has the node of that id asked again: it has said by itself that it is there.
	greet func(id string)
}

func lifeOf(w interface {
	GetId() string
	GetIncarnation() uint64
}) view.Life {
	return view.Life{ID: w.GetId(), Incarnation: w.GetIncarnation()}
}

func wireLife(l view.Life) *peerv1.Life { return &peerv1.Life{Id: l.ID, Incarnation: l.Incarnation} }

// number returns the number of the newest view, 0 if there is none.
func (s *replicaServer) number() uint64 {
	if v := s.node.View(); v != nil {
		return v.Number
	}
	return 0
}

// Feed implements peerv1.ReplicasServer.
func (s *replicaServer) Feed(ctx context.Context, req *peerv1.FeedRequest) (*peerv1.FeedResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	receipts, err := s.take(s.node.Take, lifeOf(req.GetCaller()), req.GetChanges())
	return &peerv1.FeedResponse{View: s.number(), Receipts: receipts}, err
}

// take has the node take changes of another one.
func (s *replicaServer) take(take func(view.Life, []*ownership.Changes) []ownership.Receipt, from view.Life, wire []*peerv1.Changes) ([]peerv1.FeedReceipt, error) {
	if len(wire) > s.node.Partitions {
		return nil, status.Errorf(codes.InvalidArgument, "changes: %d, there are %d partitions", len(wire), s.node.Partitions)
	}
	changes := make([]*ownership.Changes, 0, len(wire))
	for _, w := range wire {
		m, err := changesOf(w, s.node.Partitions)
		if err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		changes = append(changes, m)
	}
	return wireReceipts(take(from, changes)), nil
}

// Post implements peerv1.ReplicasServer.
func (s *replicaServer) Post(ctx context.Context, req *peerv1.PostRequest) (*peerv1.PostResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	posts, err := postsOf(req.GetPosts(), s.node.Partitions)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	resp := &peerv1.PostResponse{View: s.number()}
	for _, a := range s.node.Add(lifeOf(req.GetCaller()), posts) {
		resp.Answers = append(resp.Answers, &peerv1.PostAnswer{Refused: a.Refused, Added: a.Added, Safe: a.Safe, Shared: a.Shared})
	}
	return resp, nil
}

// Hear implements peerv1.ReplicasServer.
func (s *replicaServer) Hear(ctx context.Context, req *peerv1.HearRequest) (*peerv1.HearResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	s.greet(req.GetCaller().GetId()) // first: nothing is granted in its place after what it hears
	return &peerv1.HearResponse{View: s.number(), Posts: wirePosts(s.node.Hear(lifeOf(req.GetCaller())))}, nil
}

// Ask implements peerv1.ReplicasServer.
func (s *replicaServer) Ask(ctx context.Context, req *peerv1.AskRequest) (*peerv1.AskResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	requests, err := requestsOf(req.GetRequests(), s.node.Partitions)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	s.node.Give(lifeOf(req.GetCaller()), requests)
	return &peerv1.AskResponse{View: s.number()}, nil
}

// ListVersions implements peerv1.ReplicasServer.
func (s *replicaServer) ListVersions(ctx context.Context, req *peerv1.ListVersionsRequest) (*peerv1.ListVersionsResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	if len(req.GetPartitions()) > s.node.Partitions {
		return nil, status.Errorf(codes.InvalidArgument, "partitions: %d, there are %d", len(req.GetPartitions()), s.node.Partitions)
	}
	resp := &peerv1.ListVersionsResponse{View: s.number()}
	for _, v := range s.node.Versions(req.GetPartitions()) {
		resp.Versions = append(resp.Versions, wireVersion(v))
	}
	return resp, nil
}
