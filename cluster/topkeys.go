package cluster

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster/peerv1"
	"github.com/weirlimit/weir/internal/topkeys"
)

// topRules is how many rules an answer to ListTopKeys has bounds of, at most. A list has at most 1024 keys of 128 bytes.
const topRules = 1024

// TopLists are the lists of a cluster's nodes.
type TopLists struct {
	Lists []*topkeys.List
	// Nodes are the ids of the nodes whose lists these are, sorted.
	Nodes []string
	// Unanswered are the members whose lists are missing, sorted by id.
	Unanswered []UnansweredMember
}

// TopLists asks all members for their list, and returns after askAllTimeout at the latest. It needs OwnershipConfig.Top.
func (q *inquiries) TopLists(ctx context.Context, of topkeys.Query) *TopLists {
	all := &TopLists{Lists: []*topkeys.List{q.top.List(of)}, Nodes: []string{q.self}}
	list := func(ctx context.Context, c *otherMember) (*topkeys.List, error) { return q.listOf(ctx, c, of) }
	all.Unanswered = askAll(ctx, q, list, func(id string, l *topkeys.List) {
		all.Lists, all.Nodes = append(all.Lists, l), append(all.Nodes, id)
	})
	slices.Sort(all.Nodes)
	return all
}

// listOf asks a member for its list.
func (q *inquiries) listOf(ctx context.Context, c *otherMember, of topkeys.Query) (*topkeys.List, error) {
	resp, err := c.client.ListTopKeys(ctx, &peerv1.ListTopKeysRequest{
		Caller: q.caller(c), Order: uint32(of.Order), Window: uint32(of.Window), Domain: of.Domain, Rule: of.Rule,
	}, grpc.MaxCallRecvMsgSize(askAllMessage))
	if err != nil {
		return nil, err
	}
	l := &topkeys.List{Seconds: resp.GetSeconds(), Others: resp.GetUnlisted(), Unlisted: make(map[topkeys.Name]uint64)}
	for _, r := range resp.GetRules() {
		l.Unlisted[topkeys.Name{Domain: r.GetDomain(), ID: r.GetRule()}] = r.GetUnlisted()
	}
	for _, key := range resp.GetKeys() {
		l.Keys = append(l.Keys, topkeys.Key{
			ID: key.GetId(), Rule: topkeys.Name{Domain: key.GetDomain(), ID: key.GetRule()}, Text: string(key.GetText()),
			Least: key.GetLeast(), Most: max(key.GetLeast(), key.GetMost()), Variance: key.GetVariance(),
		})
	}
	return l, nil
}

// ListTopKeys implements peerv1.PeerServer.
func (q *inquiries) ListTopKeys(ctx context.Context, req *peerv1.ListTopKeysRequest) (*peerv1.ListTopKeysResponse, error) {
	if err := q.greet(ctx, req.GetCaller()); err != nil {
		return nil, err
	}
	if q.top == nil {
		return nil, status.Error(codes.FailedPrecondition, "keeps no lists of keys: it runs with --top-keys off")
	}
	of := topkeys.Query{
		Order: topkeys.Order(req.GetOrder()), Window: topkeys.Window(req.GetWindow()), Domain: req.GetDomain(), Rule: req.GetRule(),
	}
	if !of.Valid() {
		return nil, status.Errorf(codes.InvalidArgument, "order: %d with the window %d is no list", of.Order, of.Window)
	}
	l := q.top.List(of)
	resp := &peerv1.ListTopKeysResponse{Seconds: l.Seconds, Unlisted: l.Others}
	for name, n := range l.Unlisted {
		if len(resp.GetRules()) < topRules {
			resp.Rules = append(resp.Rules, &peerv1.UnlistedOfRule{Domain: name.Domain, Rule: name.ID, Unlisted: n})
		}
	}
	for i := range l.Keys {
		key := &l.Keys[i]
		resp.Keys = append(resp.Keys, &peerv1.TopKey{
			Id: key.ID, Domain: key.Rule.Domain, Rule: key.Rule.ID, Text: []byte(key.Text), Least: key.Least, Most: key.Most, Variance: key.Variance,
		})
	}
	return resp, nil
}
