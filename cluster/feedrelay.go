package cluster

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/cluster/view"
)

// A final state that does not arrive keeps a partition without a node that decides: the sender has ceased to, and the receiver waits. So once one is due, changes
// go through other members as well, if the receiver does not answer. They may arrive several times then, as those of any call that is given up.

const (
	relayFeedAfter = 15 * time.Millisecond // that a node has not answered: less than the time after which a check goes to the standby, the former owner
	maxFeedRelays  = 2                     // members that are asked to pass changes on, one after the other
)

// fed is what has become of changes.
type fed struct {
	receipts []ownership.Receipt
	err      error
	isDirect bool // this node has asked the receiver itself
}

// feedAnyway sends changes to a node, and, once final is closed, through others as well if it does not answer. One that did not answer last is not waited for. The
// first answer counts.
func (c *replicaClient) feedAnyway(ctx context.Context, to view.Life, req *peerv1.FeedRequest, final <-chan struct{}) ([]ownership.Receipt, error) {
	var calls sync.WaitGroup
	defer calls.Wait()
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan fed, 1+maxFeedRelays)
	calls.Go(func() { answers <- c.feedDirectly(call, to, req) })
	isSilent, relays, late := c.isSilent(to), sync.OnceValue(func() []view.Life { return c.relays(to) }), time.NewTimer(relayFeedAfter)
	defer late.Stop()
	if isSilent.Load() || !c.reachesID(to.ID) {
		late.Reset(0)
	}
	var due <-chan struct{}
	for open, asked := 1, 0; ; {
		select {
		case a := <-answers:
			open--
			if a.isDirect || a.err == nil {
				isSilent.Store(!a.isDirect || a.err != nil)
			}
			if a.err == nil {
				return a.receipts, nil
			}
			if open == 0 && (!isClosed(final) || asked == len(relays())) {
				return nil, a.err
			}
			late.Reset(0)
		case <-late.C:
			due = final
		case <-due:
			due = nil
			if asked < len(relays()) {
				relay := relays()[asked]
				asked, open = asked+1, open+1
				calls.Go(func() { answers <- c.feedThrough(call, relay, to, req.GetChanges()) })
				late.Reset(relayFeedAfter)
			}
		}
	}
}

// feedDirectly sends changes to a node.
func (c *replicaClient) feedDirectly(ctx context.Context, to view.Life, req *peerv1.FeedRequest) fed {
	client, _, err := c.member(to)
	if err != nil {
		return fed{err: err, isDirect: true}
	}
	resp, err := client.Feed(ctx, req)
	if err != nil {
		return fed{err: err, isDirect: true}
	}
	c.heard(ctx, to, resp.GetView())
	receipts, err := receiptsOf(resp.GetReceipts())
	return fed{receipts, err, true}
}

// feedThrough sends changes to a node through another member.
func (c *replicaClient) feedThrough(ctx context.Context, relay, to view.Life, changes []*peerv1.Changes) fed {
	client, caller, err := c.member(relay)
	if err != nil {
		return fed{err: err}
	}
	resp, err := client.RelayFeed(ctx, &peerv1.RelayFeedRequest{Caller: caller, Sender: wireLife(lifeOf(caller)), Receiver: wireLife(to), Changes: changes})
	if err != nil {
		return fed{err: err}
	}
	receipts, err := receiptsOf(resp.GetReceipts())
	return fed{receipts: receipts, err: err}
}

// passOn has a node take changes of another one, which does not reach it.
func (c *replicaClient) passOn(ctx context.Context, to view.Life, req *peerv1.RelayFeedRequest) (*peerv1.RelayFeedResponse, error) {
	client, caller, err := c.member(to)
	if err != nil {
		return nil, err
	}
	return client.RelayFeed(ctx, &peerv1.RelayFeedRequest{Caller: caller, Sender: req.GetSender(), Receiver: req.GetReceiver(), Changes: req.GetChanges()})
}

// RelayFeed implements peerv1.ReplicasServer. What a node passes on is not passed on again.
func (s *replicaServer) RelayFeed(ctx context.Context, req *peerv1.RelayFeedRequest) (*peerv1.RelayFeedResponse, error) {
	if err := s.admit(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	sender, receiver := lifeOf(req.GetSender()), lifeOf(req.GetReceiver())
	switch self := s.life(); {
	case receiver == self:
		receipts, err := s.take(s.node.TakeAwaited, sender, req.GetChanges())
		return &peerv1.RelayFeedResponse{Receipts: receipts}, err
	case sender != lifeOf(req.GetCaller()):
		return nil, status.Errorf(codes.InvalidArgument, "receiver: %s, incarnation %d, is not %s, incarnation %d, to which the feed of %s was passed on",
			receiver.ID, receiver.Incarnation, self.ID, self.Incarnation, sender.ID)
	}
	return s.peers.passOn(ctx, receiver, req)
}

// relaysTo returns maxFeedRelays members at most that this node reaches and that have said lately that they reach another one.
func (m *knownMembers) relaysTo(l view.Life) (relays []view.Life) {
	for _, c := range m.all() {
		if id := c.member.ID; id != l.ID && c.reachesLately(l.ID, time.Time{}) && m.router.Reaches(id) {
			relays = append(relays, c.member.life())
		}
	}
	slices.SortFunc(relays, func(a, b view.Life) int { return strings.Compare(a.ID, b.ID) })
	return relays[:min(maxFeedRelays, len(relays))]
}
