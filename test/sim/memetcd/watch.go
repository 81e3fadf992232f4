package memetcd

import (
	"bytes"
	"errors"
	"io"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// noWatch stands for no watch, or for all of a stream.
const noWatch = -1

// maxBehind is how many answers a stream may be behind; then it is ended.
const maxBehind = 10_000

// watchStream is a stream with its watches. Its fields are guarded by Server.mu.
type watchStream struct {
	watches map[int64]*watch
	nextID  int64
	queue   []*pb.WatchResponse // <= maxBehind
	wake    chan struct{}       // has room for one
}

type watch struct {
	interval
	start   int64 // revision
	prevKV  bool
	filters []pb.WatchCreateRequest_FilterType
}

// Watch implements pb.WatchServer.
func (s service) Watch(stream pb.Watch_WatchServer) error {
	ws := &watchStream{watches: make(map[int64]*watch), wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.streams[ws] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.streams, ws)
		s.mu.Unlock()
	}()
	received := make(chan error, 1)
	go func() { received <- s.receive(stream, ws) }() // ends with the stream
	leaderless := s.leaderlessFor(stream.Context())
	for {
		select {
		case <-ws.wake:
		case err := <-received:
			if !errors.Is(err, io.EOF) { // a client that closes its side keeps its watches
				return err
			}
		case <-leaderless:
			return rpctypes.ErrGRPCNoLeader
		case <-stream.Context().Done():
			return rpctypes.ErrGRPCWatchCanceled
		}
		s.mu.Lock()
		queue := ws.queue
		ws.queue = nil
		s.mu.Unlock()
		if len(queue) > maxBehind {
			return status.Errorf(codes.ResourceExhausted, "memetcd: more than %d answers behind", maxBehind)
		}
		for _, resp := range queue {
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
	}
}

func (s service) receive(stream pb.Watch_WatchServer, ws *watchStream) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		switch r := req.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			s.createLocked(ws, r.CreateRequest)
		case *pb.WatchRequest_CancelRequest:
			if id := r.CancelRequest.WatchId; ws.watches[id] != nil {
				delete(ws.watches, id)
				s.sendLocked(ws, &pb.WatchResponse{WatchId: id, Canceled: true})
			}
		case *pb.WatchRequest_ProgressRequest:
			s.progressLocked(ws)
		}
		s.mu.Unlock()
	}
}

func (s *Server) createLocked(ws *watchStream, r *pb.WatchCreateRequest) {
	w := &watch{interval: interval{r.Key, r.RangeEnd}, start: r.StartRevision, prevKV: r.PrevKv, filters: r.Filters}
	if len(w.key) == 0 {
		w.key = []byte{0} // the first that there is
	}
	refuse := func(reason string) {
		s.sendLocked(ws, &pb.WatchResponse{WatchId: noWatch, Created: true, Canceled: true, CancelReason: reason})
	}
	openEnd := len(w.end) == 1 && w.end[0] == 0
	id := r.WatchId
	switch {
	case w.start < 0:
		refuse(rpctypes.ErrCompacted.Error())
		return
	case len(w.end) > 0 && !openEnd && bytes.Compare(w.key, w.end) >= 0:
		refuse("mvcc: watcher range is empty")
		return
	case id == 0:
		for ws.watches[ws.nextID] != nil {
			ws.nextID++
		}
		id = ws.nextID
		ws.nextID++
	case ws.watches[id] != nil:
		refuse("mvcc: duplicate watch ID provided on the WatchStream")
		return
	}
	s.sendLocked(ws, &pb.WatchResponse{WatchId: id, Created: true})
	if w.start > 0 && w.start < s.store.compacted {
		s.sendLocked(ws, &pb.WatchResponse{WatchId: id, Canceled: true, CompactRevision: s.store.compacted})
		ws.queue[len(ws.queue)-1].Header.Revision = 0 // as etcd has it
		return
	}
	ws.watches[id] = w
	if w.start > 0 {
		s.tellLocked(ws, id, w, s.store.history)
	}
}

// progressLocked says how far all watches of a stream are, unless one of them waits for
// what is still to come.
func (s *Server) progressLocked(ws *watchStream) {
	if len(ws.watches) == 0 {
		return
	}
	for _, w := range ws.watches {
		if s.store.revision < w.start {
			return
		}
	}
	s.sendLocked(ws, &pb.WatchResponse{WatchId: noWatch})
}

// notifyLocked tells all watches of the events of one revision.
func (s *Server) notifyLocked(events []*mvccpb.Event) {
	for ws := range s.streams {
		for id, w := range ws.watches {
			s.tellLocked(ws, id, w, events)
		}
	}
}

func (s *Server) tellLocked(ws *watchStream, id int64, w *watch, events []*mvccpb.Event) {
	var told []*mvccpb.Event
	for _, e := range events {
		if !w.contains(string(e.Kv.Key)) || e.Kv.ModRevision < w.start || w.leavesOut(e.Type) {
			continue
		}
		told = append(told, &mvccpb.Event{Type: e.Type, Kv: e.Kv})
		if w.prevKV {
			told[len(told)-1].PrevKv = e.PrevKv
		}
	}
	if len(told) > 0 {
		s.sendLocked(ws, &pb.WatchResponse{WatchId: id, Events: told})
	}
}

func (w *watch) leavesOut(kind mvccpb.Event_EventType) bool {
	filter := pb.WatchCreateRequest_NOPUT
	if kind == mvccpb.DELETE {
		filter = pb.WatchCreateRequest_NODELETE
	}
	return slices.Contains(w.filters, filter)
}

func (s *Server) sendLocked(ws *watchStream, resp *pb.WatchResponse) {
	if len(ws.queue) <= maxBehind { // the one above it tells the sender
		resp.Header = s.headerLocked(0)
		ws.queue = append(ws.queue, resp)
	}
	select {
	case ws.wake <- struct{}{}:
	default:
	}
}
