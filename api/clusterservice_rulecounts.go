package api

import (
	"cmp"
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// GetRuleCounts implements weirv1.ClusterServer.
func (s clusterServer) GetRuleCounts(ctx context.Context, req *weirv1.GetRuleCountsRequest) (*weirv1.GetRuleCountsResponse, error) {
	if err := atMost("domain", req.GetDomain(), maxKey); err != nil {
		return nil, err
	}
	if err := within("rule_id", req.GetRuleId(), maxRuleID); err != nil {
		return nil, err
	}
	domain := cmp.Or(req.GetDomain(), DefaultDomain)
	if err := mayRead(ctx, domain); err != nil {
		return nil, err
	}
	state, self := s.rules.State(), s.status.Self()
	rule := state.Set.Rule(domain, req.GetRuleId())
	if rule == nil {
		return nil, status.Errorf(codes.NotFound, "rule_id: domain %q has no rule %q", domain, req.GetRuleId())
	}
	counts := s.checks.CountsOf(state.Set, rule.Rank())
	return &weirv1.GetRuleCountsResponse{
		NodeId: self.ID, Incarnation: self.Incarnation, Revision: state.RuleRevision(domain, rule.ID),
		Allowed: counts.Allowed, Denied: counts.Denied, WouldDeny: counts.WouldDeny, Undecided: counts.Undecided,
		LimitsPerCheck: uint32(len(rule.Limits) * max(1, len(rule.Per))),
	}, nil
}
