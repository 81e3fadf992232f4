package cluster

import (
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"

	peerv1 "github.com/weirlimit/weir/cluster/weir/peer/v1"
)

// Server answers other nodes from the local counters, and never asks anybody
// else: a question travels at most one hop, whatever views the nodes have.
type Server struct {
	peerv1.UnimplementedPeerServer
	local   Local
	streams atomic.Int64 // <= maxExchanges
}

// NewServer returns the server for the counters behind local.
func NewServer(local Local) *Server { return &Server{local: local} }

// Register registers the server with a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) { peerv1.RegisterPeerServer(r, s) }

// Exchange implements peerv1.PeerServer. One goroutine reads a frame, decides all
// of it, and writes one frame of answers.
func (s *Server) Exchange(stream grpc.BidiStreamingServer[peerv1.ExchangeRequest, peerv1.ExchangeResponse]) error {
	defer s.streams.Add(-1)
	if s.streams.Add(1) > maxExchanges {
		return status.Errorf(codes.ResourceExhausted, "streams: more than %d of other nodes", maxExchanges)
	}
	var b batch
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		answers, err := b.answer(s.local, m.GetFrame())
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "frame: %v", err)
		}
		if err := stream.Send(&peerv1.ExchangeResponse{Frame: answers}); err != nil {
			return err
		}
		if cap(b.questions) > keepQuestions || cap(b.takes) > keepQuestions {
			b = batch{} // of one large frame; not to be kept until the next one
		}
	}
}

// batch is what one stream needs to answer a frame; it is used again for the next.
type batch struct {
	takes     []shard.Take
	questions []question
	groups    []shard.Group
}

// answer decides all questions of a frame and returns the frame of answers. A
// frame with an error in it is refused as a whole, before anything is counted.
func (b *batch) answer(local Local, frame []byte) ([]byte, error) {
	b.takes, b.questions = b.takes[:0], b.questions[:0]
	r := openFrame(frame)
	for r.more() {
		var q question
		q, b.takes = r.question(b.takes)
		b.questions = append(b.questions, q)
	}
	if r.err != nil {
		return nil, r.err
	}
	out := make([]byte, 0, len(frame))
	out = append(out, wireVersion)
	for i := 0; i < len(b.questions); {
		q := &b.questions[i]
		switch q.op {
		case opReturn:
			local.Return(q.group.Takes)
			i++
		case opPing:
			out = appendAnswer(out, q.id, &shard.Group{Allowed: true})
			i++
		default:
			out, i = b.decideRun(local, out, i)
		}
	}
	return out, nil
}

// decideRun decides the questions from i up to the next one that is something
// else, all at once. It returns the index of that one.
func (b *batch) decideRun(local Local, out []byte, i int) ([]byte, int) {
	b.groups = b.groups[:0]
	end := i
	for ; end < len(b.questions) && b.questions[end].op != opReturn && b.questions[end].op != opPing; end++ {
		b.groups = append(b.groups, b.questions[end].group)
	}
	local.Decide(b.groups)
	for j := range b.groups {
		out = appendAnswer(out, b.questions[i+j].id, &b.groups[j])
	}
	return out, end
}
