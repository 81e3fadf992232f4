package memetcd

import (
	"context"
	"net"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

const (
	memberID = 1
	// noLeaderTimeout is how long a call waits for a leader.
	noLeaderTimeout = 7 * time.Second
)

// Server is an etcd. Its methods may be called from several goroutines; make it with New.
type Server struct {
	gate gate // closed while paused

	mu        sync.Mutex
	store     *store                    // guarded by mu
	written   int64                     // bytes of keys and values; guarded by mu
	streams   map[*watchStream]struct{} // guarded by mu
	clusterID uint64                    // guarded by mu; another after Wipe
	term      uint64                    // guarded by mu; rises with every election
	leader    chan struct{}             // guarded by mu; closed while there is a leader
	lost      chan struct{}             // guarded by mu; closed while there is none

	running *run // guarded by mu; nil while stopped
}

// run is the time from Start to Stop.
type run struct {
	grpc   *grpc.Server
	cancel context.CancelFunc
	parts  sync.WaitGroup
}

// New returns an etcd that is empty and not started.
func New() *Server {
	s := &Server{
		gate: newGate(), store: newStore(), streams: make(map[*watchStream]struct{}), clusterID: 1,
		leader: make(chan struct{}), lost: make(chan struct{}),
	}
	close(s.lost)
	return s
}

// Start serves on l until Stop, with what is stored. Every lease has its whole time
// again. The server must be stopped.
func (s *Server) Start(l net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{cancel: cancel, grpc: grpc.NewServer(grpc.UnaryInterceptor(s.untilLeader))}
	all := service{Server: s}
	pb.RegisterKVServer(r.grpc, all)
	pb.RegisterLeaseServer(r.grpc, all)
	pb.RegisterWatchServer(r.grpc, all)
	pb.RegisterMaintenanceServer(r.grpc, all)
	s.mu.Lock()
	s.running = r
	s.electLocked()
	s.mu.Unlock()
	r.parts.Go(func() { s.expire(ctx) })
	r.parts.Go(func() { _ = r.grpc.Serve(gatedListener{l, ctx, &s.gate}) }) // ends with Stop
}

// Stop breaks all connections and keeps what is stored. It may be called again.
func (s *Server) Stop() {
	s.mu.Lock()
	r := s.running
	s.running = nil
	s.deposeLocked()
	s.mu.Unlock()
	if r == nil {
		return
	}
	r.cancel()
	r.grpc.Stop()
	r.parts.Wait()
}

// Wipe forgets everything, as if another, empty etcd stood in its place. The server
// must be stopped.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store = newStore()
	s.clusterID++
}

// Written returns how many bytes of keys and values were written.
func (s *Server) Written() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written
}

// Pause stops the server as a signal can stop a process: its connections stay open, and
// nothing comes from them. Leases run out meanwhile, and are revoked after Resume.
func (s *Server) Pause() { s.gate.close() }

// Resume ends Pause.
func (s *Server) Resume() { s.gate.open() }

// headerLocked returns a header for a revision, 0 for the last.
func (s *Server) headerLocked(revision int64) *pb.ResponseHeader {
	h := &pb.ResponseHeader{Revision: revision}
	s.fillLocked(h)
	return h
}

func (s *Server) fillLocked(h *pb.ResponseHeader) {
	h.ClusterId, h.MemberId, h.RaftTerm = s.clusterID, memberID, s.term
	if h.Revision == 0 {
		h.Revision = s.store.revision
	}
}
