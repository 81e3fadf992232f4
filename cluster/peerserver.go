package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/shard"
)

// leasePause is between two looks for tokens that are leased.
const leasePause = 2 * time.Millisecond

// peerServer answers other nodes for Ownership.
type peerServer struct {
	*inquiries
	unimplemented
	k *Ownership
}

// unimplemented has the calls of a later version. It is one level deeper than inquiries, whose methods hide its own.
type unimplemented struct{ peerv1.UnimplementedPeerServer }

// Register registers what Ownership answers to other nodes.
func (k *Ownership) Register(s grpc.ServiceRegistrar) { peerv1.RegisterPeerServer(s, k.server()) }

func (k *Ownership) server() peerServer { return peerServer{inquiries: &k.inquiries, k: k} }

// admit refuses a call that is not for this process. If the caller has a newer view, it is
// adopted first.
func (s peerServer) admit(ctx context.Context, c *peerv1.Caller) error {
	k := s.k
	if err := s.greet(ctx, c); err != nil {
		return err
	}
	self, view := s.self()
	switch {
	case c.GetTo() != 0 && c.GetTo() != self.incarnation:
		return status.Errorf(codes.FailedPrecondition, "incarnation: %d is called, this is %d of %s", c.GetTo(), self.incarnation, self.id)
	case c.GetView() <= view || c.GetAddress() == "":
		return nil
	}
	conn, err := connect(k.Dial, c.GetId(), c.GetAddress(), nil)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "caller's address %q: %v", c.GetAddress(), err)
	}
	defer func() { _ = conn.Close() }()
	k.catchUp(ctx, peerv1.NewPeerClient(conn), &peerv1.Caller{
		Version: connVersion, Cluster: c.GetCluster(), Id: self.id, Incarnation: self.incarnation, ToId: c.GetId(), To: c.GetIncarnation(),
	})
	return nil
}

// greet refuses a caller that is not the node that it says, one of another cluster, or one that means another node.
func (q *inquiries) greet(ctx context.Context, c *peerv1.Caller) error {
	if err := checkCall(ctx, c.GetId()); err != nil {
		return status.Error(codes.PermissionDenied, err.Error())
	}
	if c.GetVersion() != connVersion {
		other := stranger{who: Identity{Cluster: c.GetCluster(), ID: c.GetId()}, address: c.GetAddress(), version: connVersionError{uint64(c.GetVersion())}}
		q.greeter.note(other)
		return status.Errorf(codes.FailedPrecondition, "this node speaks version %d of the protocol between nodes, and %s", connVersion, other.describe(q.greeter.Self()))
	}
	from := Identity{Cluster: c.GetCluster(), ID: c.GetId(), Incarnation: c.GetIncarnation()}
	if err := q.greeter.admit(from, Identity{Cluster: from.Cluster, ID: c.GetToId()}); err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

// self returns who this node is, and the number of its view.
func (s peerServer) self() (self party, view uint64) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	return s.k.ownParty, s.k.number()
}

// witness is self, and whether this node has left and confirms no decision lease any more.
func (s peerServer) witness() (self party, view uint64, departed bool) {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	return s.k.ownParty, s.k.number(), s.k.departed
}

// number returns the number of the newest view, 0 if there is none.
func (k *Ownership) number() uint64 {
	if k.view == nil {
		return 0
	}
	return k.view.Number
}

// Heartbeat implements peerv1.PeerServer. A caller with a newer view that this node does not reach is told in time what
// this node knows: it is a witness all the same.
func (s peerServer) Heartbeat(ctx context.Context, req *peerv1.HeartbeatRequest) (*peerv1.HeartbeatResponse, error) {
	asking, cancel := context.WithTimeout(ctx, callTimeout/2)
	err := s.admit(asking, req.GetCaller())
	if cancel(); err != nil {
		return nil, err
	}
	self, view, departed := s.witness()
	if departed {
		return nil, status.Errorf(codes.FailedPrecondition, "node %s has left, and confirms no decision lease", self.id)
	}
	s.k.learn(Life{req.GetCaller().GetId(), req.GetCaller().GetIncarnation()}, req.GetCaller().GetView(), req.GetAdoptions())
	s.k.admission.hear(req.GetCaller().GetId(), req.GetFindings())
	s.k.Router.hears(req.GetCaller().GetId())
	handover := s.k.HandoverStatus()
	return &peerv1.HeartbeatResponse{
		Reaches: s.k.Router.reached(), Adoptions: s.k.tell(), Findings: s.k.admission.say(), Clock: s.k.Shard.Now(),
		View: view, Incarnation: self.incarnation,
		Active: uint32(handover.Active), Wanted: uint32(handover.Wanted), Leaving: uint32(handover.Leaving),
		State: string(handover.State), Load: s.k.Load().wire(time.Now()),
	}, nil
}

// GetView implements peerv1.PeerServer.
func (s peerServer) GetView(ctx context.Context, req *peerv1.GetViewRequest) (*peerv1.GetViewResponse, error) {
	if err := s.greet(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	s.k.mu.Lock()
	v := s.k.view
	s.k.mu.Unlock()
	if v == nil {
		return &peerv1.GetViewResponse{}, nil
	}
	b, err := MarshalView(v)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &peerv1.GetViewResponse{View: b}, nil
}

// Locate implements peerv1.PeerServer.
func (s peerServer) Locate(ctx context.Context, req *peerv1.LocateRequest) (*peerv1.LocateResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	k := s.k
	if len(req.GetPartitions()) > len(k.parts) || len(req.GetFetch()) > len(k.parts) {
		return nil, status.Errorf(codes.InvalidArgument, "partitions: there are %d", len(k.parts))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	resp := &peerv1.LocateResponse{View: k.number()}
	for _, p := range req.GetPartitions() {
		if int(p) >= len(k.parts) {
			return nil, status.Errorf(codes.InvalidArgument, "partition: %d is not below %d", p, len(k.parts))
		}
		resp.Partitions = append(resp.Partitions, k.answerLocate(p))
	}
	for _, f := range req.GetFetch() {
		if int(f.GetPartition()) < len(k.parts) && k.parts[f.GetPartition()].tenure.state != active {
			k.parts[f.GetPartition()].fetch = f.GetOwner()
			k.look()
		}
	}
	return resp, nil
}

func (k *Ownership) answerLocate(p uint32) *peerv1.Located {
	pt := &k.parts[p]
	l := &peerv1.Located{Heat: k.Shard.Heat(p), Ending: k.over || pt.over}
	v := k.copyOf(p)
	switch {
	case pt.tenure.state == active:
		l.State = peerv1.ReplicaState_REPLICA_STATE_ACTIVE
		v = copyVersion{term: pt.tenure.term, seq: pt.sequence, whole: true}
	case pt.tenure.state == sealed:
		l.State, l.To, l.ToIncarnation = peerv1.ReplicaState_REPLICA_STATE_SEALED, pt.tenure.to.id, pt.tenure.to.incarnation
		v = copyVersion{term: pt.tenure.term, whole: true}
	case pt.pulling, pt.fetch != "", k.view != nil && pt.tenure.mayCreate(k.claim(p)):
		l.State = peerv1.ReplicaState_REPLICA_STATE_PENDING
	default:
		l.State = peerv1.ReplicaState_REPLICA_STATE_ABSENT
	}
	l.Term, l.Sequence, l.Whole = uint64(v.term), v.seq, v.whole
	l.SnapshotTerm, l.SnapshotSequence = v.snapshot.Term, v.snapshot.Sequence
	return l
}

// granted is added to the sequence of a copy from which something was granted that its owner was not told: it is
// newer than others of the same sequence.
const granted = 1 << 62

// copyOf returns what copy this node has of p.
func (k *Ownership) copyOf(p uint32) copyVersion {
	v := k.parts[p].copy
	if _, told := k.outbox[p]; v.term > 0 && (told || k.Shard.HasGrants(p)) {
		v.seq |= granted
	}
	return v
}

// Pull implements peerv1.PeerServer.
func (s peerServer) Pull(req *peerv1.PullRequest, stream grpc.ServerStreamingServer[peerv1.PullResponse]) error {
	if err := s.admit(stream.Context(), req.GetCaller()); err != nil {
		return err
	}
	k, p := s.k, req.GetPartition()
	if int(p) >= len(k.parts) {
		return status.Errorf(codes.InvalidArgument, "partition: %d is not below %d", p, len(k.parts))
	}
	if req.GetGrants() && !req.GetCopy() {
		return status.Error(codes.InvalidArgument, "grants: they go with a copy")
	}
	to := party{req.GetCaller().GetId(), req.GetCaller().GetIncarnation()}
	if err := k.beginMove(p, to, req.GetCopy()); err != nil {
		return err
	}
	defer k.endMove(p)
	if !req.GetCopy() {
		if err := stream.Send(&peerv1.PullResponse{Added: k.addedTo(p)}); err != nil {
			return err
		}
	}
	if req.GetGrants() {
		k.Shard.Unfollow(p, shard.ToSuccessor)
	}
	if err := k.sendChanges(stream, p); err != nil {
		return err
	}
	if req.GetCopy() {
		return k.giveCopy(stream, p, to)
	}
	k.awaitLeases(stream.Context(), p)
	term, err := k.seal(p, to)
	if err != nil {
		return err
	}
	failpoint("sealed")
	if err := k.sendChanges(stream, p); err != nil { // what has changed meanwhile
		return err
	}
	return stream.Send(&peerv1.PullResponse{Term: uint64(term), Last: true, Added: k.addedTo(p)})
}

// addedTo is deliveries for callers that do not hold mu.
func (k *Ownership) addedTo(p uint32) []*peerv1.Delivery {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.deliveries(p)
}

// beginMove reports whether to may have p, and begins to note what changes in it.
func (k *Ownership) beginMove(p uint32, to party, isCopy bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	held := pt.tenure.state == active && k.claim(p).owner == to || pt.tenure.state == sealed && pt.tenure.to == to
	switch {
	case pt.moving, pt.pulling:
		return status.Errorf(codes.Aborted, "partition %d is being fetched", p)
	case isCopy && !pt.copy.whole && pt.copyAt.id != "" && pt.copyAt != to && k.Router.Reaches(pt.copyAt.id):
		return status.Errorf(codes.NotFound, "the copy of partition %d is at %s", p, pt.copyAt.id)
	case !held && !isCopy, isCopy && pt.tenure.state == active:
		return status.Errorf(codes.NotFound, "partition %d is not held for %s, incarnation %d", p, to.id, to.incarnation)
	}
	pt.moving, pt.mover = true, to.id
	k.Shard.Follow(p, shard.ToSuccessor)
	return nil
}

func (k *Ownership) endMove(p uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parts[p].moving = false
	k.Shard.Unfollow(p, shard.ToSuccessor)
}

// sendChanges sends what the caller of Pull has not been sent yet.
func (k *Ownership) sendChanges(stream grpc.ServerStreamingServer[peerv1.PullResponse], p uint32) error {
	for {
		records, more := k.Shard.Changes(p, shard.ToSuccessor, nil, messageBytes)
		if len(records) > 0 {
			if err := stream.Send(&peerv1.PullResponse{Records: records}); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// giveCopy ends the transfer of a copy: nothing is decided from it here any more, and with it go the grants that
// are part of it, which are another node's to report from now on.
func (k *Ownership) giveCopy(stream grpc.ServerStreamingServer[peerv1.PullResponse], p uint32, to party) error {
	k.mu.Lock()
	pt := &k.parts[p]
	if pt.posting {
		k.mu.Unlock()
		return status.Errorf(codes.Unavailable, "partition %d: its owner is just being told what was granted here", p)
	}
	before, at := pt.copy, pt.copyAt
	pt.copy.whole, pt.copyAt = false, to
	k.Shard.Withhold(p, true)
	grants := k.outbox[p].grants
	delete(k.outbox, p)
	for more := k.Shard.TakeGrants(p, maxGrantBatch); len(more) > 0; more = k.Shard.TakeGrants(p, maxGrantBatch) {
		grants = append(grants, more...)
	}
	k.mu.Unlock()
	err := k.sendCopy(stream, p, before.term, grants)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Logger.Debug("copy given away", "partition", p, "to", to.id, "grants", len(grants), "error", err)
	if err != nil {
		k.enclose(p, grants) // they are still this node's to tell
	} else {
		k.Shard.Underway(p, k.outbox[p].grants)
	}
	if err != nil && pt.copy.term == before.term {
		pt.copy.whole, pt.copyAt = before.whole, at
		k.Shard.Withhold(p, false)
	}
	return err
}

// awaitLeases waits until nodes have used or returned what was leased to them of counters of p, of which no more is leased. The next owner
// does not know of it: it would count it as used, and then tell callers that more remains once it comes back. Nodes that have nothing to
// ask return it within two sweeps.
func (k *Ownership) awaitLeases(ctx context.Context, p uint32) {
	for over := time.Now().Add(3 * idleLease); k.Shard.HasNodeLeases(p) && time.Now().Before(over) && ctx.Err() == nil; {
		k.Router.pause(ctx, leasePause)
	}
}

func (k *Ownership) sendCopy(stream grpc.ServerStreamingServer[peerv1.PullResponse], p uint32, term Term, grants []shard.Grant) error {
	if err := k.sendChanges(stream, p); err != nil {
		return err
	}
	for {
		encoded, n := packGrants(grants)
		if n == len(grants) {
			return stream.Send(&peerv1.PullResponse{Grants: encoded, Term: uint64(term), Last: true})
		}
		if err := stream.Send(&peerv1.PullResponse{Grants: encoded}); err != nil {
			return err
		}
		grants = grants[n:]
	}
}

// seal seals p for to, and returns the term of what to gets.
func (k *Ownership) seal(p uint32, to party) (Term, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	had := pt.tenure.state
	term, ok := pt.tenure.seal(k.claim(p), to)
	if !ok {
		return 0, status.Errorf(codes.NotFound, "partition %d is not held for %s any more", p, to.id)
	}
	if had == active {
		k.sealGate(p)
		k.metrics.sealed.Inc()
		k.Logger.Debug("partition sealed", "partition", p, "for", to.id, "term", term)
	}
	return term, nil
}

// Confirm implements peerv1.PeerServer.
func (s peerServer) Confirm(ctx context.Context, req *peerv1.ConfirmRequest) (*peerv1.ConfirmResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	k, p := s.k, req.GetPartition()
	if int(p) >= len(k.parts) {
		return nil, status.Errorf(codes.InvalidArgument, "partition: %d is not below %d", p, len(k.parts))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	if term := Term(req.GetTerm()); pt.tenure.confirm(term) {
		pt.copy, pt.fresh = copyVersion{term: term, whole: true}, true
	}
	return &peerv1.ConfirmResponse{}, nil
}

// Replicate implements peerv1.PeerServer.
func (s peerServer) Replicate(ctx context.Context, req *peerv1.ReplicateRequest) (*peerv1.ReplicateResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	k := s.k
	k.mu.Lock()
	defer k.mu.Unlock()
	resp := &peerv1.ReplicateResponse{View: k.number()}
	for _, r := range req.GetReplicas() {
		if int(r.GetPartition()) >= len(k.parts) {
			return nil, status.Errorf(codes.InvalidArgument, "partition: %d is not below %d", r.GetPartition(), len(k.parts))
		}
		if !k.receive(r, req.GetCaller().GetId()) {
			resp.Again = append(resp.Again, r.GetPartition())
		}
	}
	return resp, nil
}

// receive lays a replica of that member over the copy of its partition. It is false if something is missing
// between the two.
func (k *Ownership) receive(r *peerv1.Replica, from string) bool {
	p, term, seq := r.GetPartition(), Term(r.GetTerm()), r.GetSequence()
	pt := &k.parts[p]
	switch {
	case pt.tenure.state != absent, term < pt.copy.term, k.view == nil, term < firstOf(k.view.claim(p).base):
		return true // of no use, but nothing that sending it again would help
	case pt.pulling: // what is laid down at the moment is older
		return false
	case !r.GetBegin() && (term != pt.copy.term || seq != pt.copy.seq+1):
		return false
	}
	k.dropAdded(p, r.GetAdded())
	if err := k.Shard.Apply(p, r.GetRecords()); err != nil {
		k.Logger.Error("replica refused", "partition", p, "error", err)
		return true
	}
	if r.GetBegin() || r.GetWhole() && !pt.copy.whole {
		k.Logger.Debug("replica", "partition", p, "term", term, "sequence", seq, "begins", r.GetBegin(), "whole", r.GetWhole())
	}
	pt.copy, pt.fedBy = copyVersion{term: term, seq: seq, whole: r.GetWhole() || pt.copy.whole && !pt.copy.isRestored()}, from
	if r.GetWhole() {
		pt.fresh = true
		k.Shard.Withhold(p, false)
	}
	return true
}

// AddGrants implements peerv1.PeerServer.
func (s peerServer) AddGrants(ctx context.Context, req *peerv1.AddGrantsRequest) (*peerv1.AddGrantsResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	k, p := s.k, req.GetPartition()
	if int(p) >= len(k.parts) {
		return nil, status.Errorf(codes.InvalidArgument, "partition: %d is not below %d", p, len(k.parts))
	}
	grants, err := parseGrants(req.GetGrants())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "grants: %v", err)
	}
	if !k.areOf(p, grants) {
		return nil, status.Errorf(codes.InvalidArgument, "grants: one is not of partition %d", p)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	from, this := grantor{req.GetCaller().GetId(), p}, delivery{req.GetCaller().GetIncarnation(), req.GetBatch()}
	return &peerv1.AddGrantsResponse{Added: k.add(from, this, grants)}, nil
}

// Gather implements peerv1.PeerServer.
func (s peerServer) Gather(ctx context.Context, req *peerv1.GatherRequest) (*peerv1.GatherResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	for _, b := range req.GetAdded() {
		s.k.delivered(b.GetPartition(), b.GetBatch(), int(b.GetCount()))
	}
	s.k.Router.greet(req.GetCaller().GetId())
	return s.k.hand(req.GetCaller().GetId()), nil
}
