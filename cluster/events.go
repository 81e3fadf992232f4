package cluster

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/cluster/peerv1"
)

// maxEvents is how many events an answer has at most.
const maxEvents = 200

// Event is one thing that has happened, in words for people. The cluster passes it on, and knows nothing of what it says.
type Event struct {
	At                    time.Time
	Kind, Target, Caller  string
	Outcome, Tone, Reason string
	Node                  string // the node that was asked, or has seen it
}

// OtherEvents asks all other members for their events, and returns after askAllTimeout at the latest. Silent are the ids of those that
// have not answered, sorted.
func (q *inquiries) OtherEvents(ctx context.Context) (events []Event, silent []string) {
	list := func(ctx context.Context, c *otherMember) (*peerv1.ListEventsResponse, error) {
		return c.client.ListEvents(ctx, &peerv1.ListEventsRequest{Caller: q.caller(c)}, grpc.MaxCallRecvMsgSize(askAllMessage))
	}
	unanswered := askAll(ctx, q, list, func(_ string, resp *peerv1.ListEventsResponse) {
		for _, e := range resp.GetEvents()[:min(len(resp.GetEvents()), maxEvents)] {
			events = append(events, Event{
				At: time.Unix(0, e.GetTime()), Kind: e.GetKind(), Target: e.GetTarget(), Caller: e.GetCaller(), Outcome: e.GetOutcome(), Tone: e.GetTone(),
				Reason: e.GetReason(), Node: e.GetNode(),
			})
		}
	})
	for _, m := range unanswered {
		silent = append(silent, m.ID)
	}
	return events, silent
}

// ListEvents implements peerv1.PeerServer.
func (q *inquiries) ListEvents(ctx context.Context, req *peerv1.ListEventsRequest) (*peerv1.ListEventsResponse, error) {
	if err := q.greet(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	resp := &peerv1.ListEventsResponse{}
	events := q.events(ctx)
	for _, e := range events[:min(len(events), maxEvents)] {
		resp.Events = append(resp.Events, &peerv1.Event{
			Time: e.At.UnixNano(), Kind: e.Kind, Target: e.Target, Caller: e.Caller, Outcome: e.Outcome, Tone: e.Tone, Reason: e.Reason, Node: e.Node,
		})
	}
	return resp, nil
}
