package api

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of ListTopKeys.
const (
	defaultTopKeys = 10
	maxTopKeys     = 200
)

// HashedValue returns what the decision log has in place of the value of an attribute.
func HashedValue(h ring.Hasher, key, value string) string {
	return check.HashedValue(h, rules.Attribute{Key: key, Value: value})
}

// ListTopKeys implements weirv1.ClusterServer.
func (s clusterServer) ListTopKeys(ctx context.Context, req *weirv1.ListTopKeysRequest) (*weirv1.ListTopKeysResponse, error) {
	q, err := topQuery(req)
	if err != nil {
		return nil, err
	}
	if err := mayRead(ctx, q.Domain); err != nil {
		return nil, err
	}
	if q.Rule != "" && s.status.Rules().Rule(q.Domain, q.Rule) == nil {
		return nil, status.Errorf(codes.NotFound, "rule_id: domain %q has no rule %q", q.Domain, q.Rule)
	}
	all := s.status.TopLists(ctx, q)
	if all == nil {
		return nil, status.Error(codes.FailedPrecondition, "this node keeps no lists of keys: it runs with --top-keys off")
	}
	limit := int(cmp.Or(req.GetLimit(), defaultTopKeys))
	sum := topkeys.Merge(all.Lists, limit)
	resp := &weirv1.ListTopKeysResponse{Seconds: sum.Seconds, Nodes: all.Nodes, Unlisted: sum.Others}
	for _, u := range all.Unanswered {
		resp.Unanswered = append(resp.Unanswered, &weirv1.UnansweredNode{Id: u.ID, Reason: u.Reason})
	}
	for i := range sum.Keys {
		resp.Keys = append(resp.Keys, topKey(&sum.Keys[i]))
	}
	return resp, nil
}

func topKey(k *topkeys.Key) *weirv1.TopKey {
	key := &weirv1.TopKey{
		Domain: k.Rule.Domain, RuleId: k.Rule.ID, Count: k.Least, Uncounted: k.Most - k.Least,
		StandardError: uint64(math.Ceil(math.Sqrt(max(0, k.Variance)))),
	}
	for _, a := range topkeys.Attributes(k.Text) {
		key.Entries = append(key.Entries, &weirv1.KeyEntry{Key: a.Key, Value: a.Value, Cut: a.Cut})
	}
	return key
}

// topQuery reads and checks a request.
func topQuery(req *weirv1.ListTopKeysRequest) (q topkeys.Query, err error) {
	order := slices.Index(topkeys.OrderNames, cmp.Or(req.GetBy(), topkeys.OrderNames[0]))
	if order < 0 {
		return q, wire.Invalid("by", "%q is not one of %s", req.GetBy(), strings.Join(topkeys.OrderNames, ", "))
	}
	window := slices.Index(topkeys.WindowNames, cmp.Or(req.GetWindow(), topkeys.WindowNames[0]))
	if window < 0 {
		return q, wire.Invalid("window", "%q is not one of %s", req.GetWindow(), strings.Join(topkeys.WindowNames, ", "))
	}
	if err := atMost("domain", req.GetDomain(), maxKey); err != nil {
		return q, err
	}
	if req.GetLimit() > maxTopKeys {
		return q, wire.Invalid("limit", "%d is more than %d", req.GetLimit(), maxTopKeys)
	}
	q = topkeys.Query{Order: topkeys.Order(order), Window: topkeys.Window(window), Domain: req.GetDomain(), Rule: req.GetRuleId()}
	if q.Rule != "" {
		q.Domain = cmp.Or(q.Domain, DefaultDomain)
	}
	return q, nil
}
