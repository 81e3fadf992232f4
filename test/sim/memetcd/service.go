package memetcd

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// maxOps is how many comparisons, and operations on each branch, a transaction may have.
const maxOps = 128

// commit carries out f as one change, unless it fails.
func (s service) commit(f func(u *update) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := &update{store: s.store}
	if err := f(u); err != nil {
		return err
	}
	events := u.commit()
	for _, e := range events {
		s.written += int64(len(e.Kv.Key) + len(e.Kv.Value))
	}
	s.notifyLocked(events)
	return nil
}

// Range implements pb.KVServer.
func (s service) Range(_ context.Context, r *pb.RangeRequest) (resp *pb.RangeResponse, err error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	err = s.commit(func(u *update) error {
		if resp, err = u.read(r); err == nil {
			s.fillLocked(resp.Header)
		}
		return err
	})
	return resp, err
}

// Put implements pb.KVServer.
func (s service) Put(_ context.Context, r *pb.PutRequest) (resp *pb.PutResponse, err error) {
	err = s.commit(func(u *update) error {
		if err := u.checkPut(r); err != nil {
			return err
		}
		resp = u.put(r)
		s.fillLocked(resp.Header)
		return nil
	})
	return resp, err
}

// DeleteRange implements pb.KVServer.
func (s service) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (resp *pb.DeleteRangeResponse, err error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	err = s.commit(func(u *update) error {
		resp = u.deleteRange(r)
		s.fillLocked(resp.Header)
		return nil
	})
	return resp, err
}

// Compact implements pb.KVServer.
func (s service) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.store.compact(r.Revision); err != nil {
		return nil, err
	}
	return &pb.CompactionResponse{Header: s.headerLocked(0)}, nil
}

// Txn implements pb.KVServer.
func (s service) Txn(_ context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if err := checkTxn(r); err != nil {
		return nil, err
	}
	resp := &pb.TxnResponse{}
	err := s.commit(func(u *update) error {
		resp.Succeeded = !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !u.holds(c) })
		ops := r.Success
		if !resp.Succeeded {
			ops = r.Failure
		}
		if err := u.check(ops); err != nil {
			return err
		}
		for _, op := range ops {
			answer, err := u.run(op)
			if err != nil {
				return err
			}
			resp.Responses = append(resp.Responses, answer)
		}
		resp.Header = s.headerLocked(u.now())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// run carries out an operation that check has found good.
func (u *update) run(op *pb.RequestOp) (*pb.ResponseOp, error) {
	switch r := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: u.put(r.RequestPut)}}, nil
	case *pb.RequestOp_RequestDeleteRange:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: u.deleteRange(r.RequestDeleteRange)}}, nil
	}
	resp, err := u.read(op.GetRequestRange())
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: resp}}, err
}

// check refuses operations before any is carried out.
func (u *update) check(ops []*pb.RequestOp) error {
	for _, op := range ops {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			if _, err := u.at(r.RequestRange.Revision); err != nil {
				return err
			}
		case *pb.RequestOp_RequestPut:
			if err := u.checkPut(r.RequestPut); err != nil {
				return err
			}
		}
	}
	return nil
}

func (u *update) checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	case r.Lease != 0 && u.leases[r.Lease] == nil:
		return rpctypes.ErrGRPCLeaseNotFound
	case (r.IgnoreValue || r.IgnoreLease) && u.live[string(r.Key)] == nil:
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

// checkTxn refuses requests that are invalid for any contents of the store.
func checkTxn(r *pb.TxnRequest) error {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, ops := range [][]*pb.RequestOp{r.Success, r.Failure} {
		if err := checkOps(ops); err != nil {
			return err
		}
	}
	return nil
}

// checkOps refuses operations without a key, and two that change one key.
func checkOps(ops []*pb.RequestOp) error {
	var deleted []interval
	put := make(map[string]bool)
	for _, op := range ops {
		var key []byte
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			key = r.RequestRange.Key
		case *pb.RequestOp_RequestPut:
			key = r.RequestPut.Key
			if put[string(key)] {
				return rpctypes.ErrGRPCDuplicateKey
			}
			put[string(key)] = true
		case *pb.RequestOp_RequestDeleteRange:
			key = r.RequestDeleteRange.Key
			deleted = append(deleted, interval{key, r.RequestDeleteRange.RangeEnd})
		default:
			return status.Error(codes.Unimplemented, "memetcd: transactions have no transactions within")
		}
		if len(key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for key := range put {
		if slices.ContainsFunc(deleted, func(i interval) bool { return i.contains(key) }) {
			return rpctypes.ErrGRPCDuplicateKey
		}
	}
	return nil
}

// LeaseGrant implements pb.LeaseServer.
func (s service) LeaseGrant(_ context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := r.ID
	for id == 0 {
		id = rand.Int64()
	}
	l, err := s.store.grant(id, r.TTL)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: s.headerLocked(0), ID: l.id, TTL: l.ttl}, nil
}

// LeaseRevoke implements pb.LeaseServer.
func (s service) LeaseRevoke(_ context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	resp := &pb.LeaseRevokeResponse{}
	err := s.commit(func(u *update) error {
		l := u.leases[r.ID]
		if l == nil {
			return rpctypes.ErrGRPCLeaseNotFound
		}
		u.revoke(l)
		resp.Header = s.headerLocked(u.now())
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// LeaseTimeToLive implements pb.LeaseServer.
func (s service) LeaseTimeToLive(_ context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &pb.LeaseTimeToLiveResponse{Header: s.headerLocked(0), ID: r.ID, TTL: -1}
	if l := s.store.leases[r.ID]; l != nil {
		resp.TTL, resp.GrantedTTL = int64(l.left().Seconds()), l.ttl
		if r.Keys {
			for _, key := range slices.Sorted(maps.Keys(l.keys)) {
				resp.Keys = append(resp.Keys, []byte(key))
			}
		}
	}
	return resp, nil
}

// LeaseLeases implements pb.LeaseServer.
func (s service) LeaseLeases(context.Context, *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &pb.LeaseLeasesResponse{Header: s.headerLocked(0)}
	for _, l := range slices.SortedFunc(maps.Values(s.store.leases), func(a, b *lease) int { return a.expiry.Compare(b.expiry) }) {
		resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: l.id})
	}
	return resp, nil
}

// LeaseKeepAlive implements pb.LeaseServer.
func (s service) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		resp := &pb.LeaseKeepAliveResponse{Header: s.headerLocked(0), ID: req.ID}
		s.mu.Unlock()
		if resp.TTL, err = s.renew(stream.Context(), req.ID); err != nil {
			return err
		}
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
}

// Status implements pb.MaintenanceServer.
func (s service) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := &pb.StatusResponse{Header: s.headerLocked(0), Version: "memory", RaftTerm: s.term}
	if s.hasLeaderLocked() {
		resp.Leader = memberID
	}
	return resp, nil
}

// service implements etcd's services.
type service struct {
	pb.UnimplementedKVServer
	pb.UnimplementedLeaseServer
	pb.UnimplementedWatchServer
	pb.UnimplementedMaintenanceServer
	*Server
}
