package memetcd

import (
	"context"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// LoseLeader leaves the server without a leader: calls wait for one, streams that
// require a leader end, and leases do not run out.
func (s *Server) LoseLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deposeLocked()
}

// ElectLeader ends LoseLeader. Every lease has its whole time again.
func (s *Server) ElectLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.electLocked()
}

func (s *Server) hasLeaderLocked() bool {
	select {
	case <-s.leader:
		return true
	default:
		return false
	}
}

func (s *Server) electLocked() {
	if !s.hasLeaderLocked() {
		close(s.leader)
		s.lost = make(chan struct{})
		s.term++
		s.store.promote()
	}
}

func (s *Server) deposeLocked() {
	if s.hasLeaderLocked() {
		close(s.lost)
		s.leader = make(chan struct{})
	}
}

// awaitLeader waits until there is a leader, unless the caller would rather not.
func (s *Server) awaitLeader(ctx context.Context) error {
	s.mu.Lock()
	has, leader := s.hasLeaderLocked(), s.leader
	s.mu.Unlock()
	if has {
		return nil
	}
	if requiresLeader(ctx) {
		return rpctypes.ErrGRPCNoLeader
	}
	timeout := time.NewTimer(noLeaderTimeout)
	defer timeout.Stop()
	select {
	case <-leader:
		return nil
	case <-timeout.C:
		return rpctypes.ErrGRPCTimeout
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leaderlessFor returns a channel that is closed when there is no leader, if the caller
// wants to know.
func (s *Server) leaderlessFor(ctx context.Context) <-chan struct{} {
	if !requiresLeader(ctx) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lost
}

func requiresLeader(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return slices.Contains(md.Get(rpctypes.MetadataRequireLeaderKey), rpctypes.MetadataHasLeader)
}

// untilLeader is the interceptor of calls that are no streams.
func (s *Server) untilLeader(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if info.FullMethod != pb.Maintenance_Status_FullMethodName {
		if err := s.awaitLeader(ctx); err != nil {
			return nil, err
		}
	}
	return handler(ctx, req)
}
