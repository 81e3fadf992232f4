package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// Bounds of StreamDecisions. How much is read in all, and for how long, is a bound of the caller.
const (
	decisionStreams = 2               // that a node sends at once
	decisionPiece   = 64 << 10        // bytes of one message
	firstDecisions  = 2 * time.Second // until a member has begun to send
	nextDecisions   = 5 * time.Second // until it goes on
)

// DecisionLog has the lines of a member's decision log. It is an io.Reader, for one goroutine.
type DecisionLog struct {
	// ID is the member's.
	ID string

	ctx    context.Context
	pieces chan decisionPieceOrEnd // has room for one
	rest   []byte
	err    error
}

// decisionPieceOrEnd is a piece of a log, or the error with which it ends.
type decisionPieceOrEnd struct {
	lines []byte
	err   error
}

// errNoDecisions says that a member does not go on.
var errNoDecisions = errors.New("no answer")

// OtherDecisions asks all other members for the lines of their decision logs since an instant, and returns the logs of those that have
// begun to send after firstDecisions at the latest, by id. Missing are the others. What has begun ends with ctx.
func (q *inquiries) OtherDecisions(ctx context.Context, since time.Time) (logs []*DecisionLog, missing []UnansweredMember) {
	for _, c := range q.members() {
		d := &DecisionLog{ID: c.member.ID, ctx: ctx, pieces: make(chan decisionPieceOrEnd, 1)}
		logs = append(logs, d)
		go d.receive(c, &peerv1.StreamDecisionsRequest{Caller: q.caller(c), Since: since.UnixNano()})
	}
	begun := time.Now()
	logs = slices.DeleteFunc(logs, func(d *DecisionLog) bool {
		d.await(firstDecisions - time.Since(begun))
		if d.err == nil {
			return false
		}
		missing = append(missing, UnansweredMember{d.ID, d.Reason()})
		return true
	})
	slices.SortFunc(logs, func(a, b *DecisionLog) int { return strings.Compare(a.ID, b.ID) })
	slices.SortFunc(missing, func(a, b UnansweredMember) int { return strings.Compare(a.ID, b.ID) })
	return logs, missing
}

// receive receives the log of a member until it ends, or the context.
func (d *DecisionLog) receive(c *otherMember, req *peerv1.StreamDecisionsRequest) {
	stream, err := c.client.StreamDecisions(d.ctx, req, grpc.MaxCallRecvMsgSize(2*decisionPiece))
	for err == nil {
		var resp *peerv1.StreamDecisionsResponse
		if resp, err = stream.Recv(); err == nil && !d.hand(decisionPieceOrEnd{lines: resp.GetLines()}) {
			return
		}
	}
	d.hand(decisionPieceOrEnd{err: err})
}

// hand waits until there is room for a piece. It is false if the context has ended.
func (d *DecisionLog) hand(p decisionPieceOrEnd) bool {
	select {
	case d.pieces <- p:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// await waits for the next piece.
func (d *DecisionLog) await(patience time.Duration) {
	select {
	case p := <-d.pieces: // it is there, also if there is no time left
		d.rest, d.err = p.lines, p.err
		return
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case p := <-d.pieces:
		d.rest, d.err = p.lines, p.err
	case <-timer.C:
		d.err = errNoDecisions
	case <-d.ctx.Done():
		d.err = d.ctx.Err()
	}
}

// Read implements io.Reader. It waits for nextDecisions at most.
func (d *DecisionLog) Read(b []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		d.await(nextDecisions)
	}
	n := copy(b, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// Reason says in words why the log has ended, empty if that is its end.
func (d *DecisionLog) Reason() string {
	switch code := status.Code(d.err); {
	case d.err == nil, errors.Is(d.err, io.EOF):
		return ""
	case code == codes.Unimplemented:
		return "runs a version that does not send its decision log"
	case code == codes.FailedPrecondition, code == codes.ResourceExhausted:
		return status.Convert(d.err).Message()
	}
	return errNoDecisions.Error()
}

// StreamDecisions implements peerv1.PeerServer.
func (q *inquiries) StreamDecisions(req *peerv1.StreamDecisionsRequest, stream grpc.ServerStreamingServer[peerv1.StreamDecisionsResponse]) (err error) {
	if err := q.greet(stream.Context(), req.GetCaller()); err != nil {
		return err
	}
	select {
	case q.sendsDecisions <- struct{}{}:
		defer func() { <-q.sendsDecisions }()
	default:
		return status.Errorf(codes.ResourceExhausted, "sends its decision log to %d nodes already", decisionStreams)
	}
	log, err := q.log(time.Unix(0, req.GetSince()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := stream.Send(&peerv1.StreamDecisionsResponse{}); err != nil {
		return err
	}
	for {
		piece := make([]byte, decisionPiece)
		n, err := log.Read(piece)
		if n > 0 {
			if err := stream.Send(&peerv1.StreamDecisionsResponse{Lines: piece[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Error(codes.Unavailable, fmt.Sprintf("decision log: %v", err))
		}
	}
}
