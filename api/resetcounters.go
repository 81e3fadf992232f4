package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Reset makes counters fresh ones, for callers over gRPC and in this process.
func (l *Limiter) Reset(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	w := l.newWork(ctx)
	defer l.works.Put(w)
	if err := l.namedCounters(w, req); err != nil {
		return nil, err
	}
	return l.reset(ctx, w)
}

// reset makes the counters of w's matches fresh ones.
func (l *Limiter) reset(ctx context.Context, w *work) (*weirv1.ResetRateLimitResponse, error) {
	for i := range w.Matches {
		w.Groups = append(w.Groups, shard.Group{Reset: true, Takes: []shard.Take{{Key: w.Matches[i].Key, Limit: w.Matches[i].Held()}}})
	}
	l.checks.Decider.Decide(ctx, w.Groups)
	resp := &weirv1.ResetRateLimitResponse{}
	var owners []string // of counters that were not reset
	overloaded := 0
	for i := range w.Matches {
		st := l.limitStatus(&w.Matches[i], &w.Groups[i].Takes[0])
		switch w.Groups[i].Takes[0].Source {
		case shard.Owner, shard.Relayed:
		case shard.Overloaded:
			overloaded++
			fallthrough
		default:
			owners = append(owners, st.GetOwner())
		}
		resp.Limits = append(resp.Limits, st)
	}
	if len(owners) > 0 {
		return nil, notReset(owners, overloaded, len(w.Matches))
	}
	return resp, nil
}

// notReset is the error for a reset of which some counters were not reset: those of these owners, and overloaded of them for
// want of time. counters is the number of all.
func notReset(owners []string, overloaded, counters int) error {
	n := len(owners)
	code, begin, why := codes.Unavailable, "", "does not answer"
	switch overloaded {
	case 0:
	case n:
		code, begin, why = codes.ResourceExhausted, "overloaded: ", "has no time for them"
	default:
		why = "does not answer or has no time for them"
	}
	slices.Sort(owners)
	return status.Errorf(code, "%s%d of %d counters were not reset, because their owner %s: %s; try again",
		begin, n, counters, why, strings.Join(slices.Compact(owners), ", "))
}

// namedCounters makes w.Matches the counters that req names.
func (l *Limiter) namedCounters(w *work, req *weirv1.ResetRateLimitRequest) error {
	if req.GetIdentifier() == "" && req.GetIdentifierType() == "" && req.GetRuleId() != "" {
		w.Request.Domain = cmp.Or(req.GetDomain(), DefaultDomain)
		if err := w.hasRules(); err != nil {
			return err
		}
	} else if err := l.name(w, &weirv1.RateLimitRequest{
		Identifier: req.GetIdentifier(), IdentifierType: req.GetIdentifierType(),
		Domain: req.GetDomain(), Attributes: req.GetAttributes(),
	}); err != nil {
		return err
	}
	if req.GetRuleId() == "" {
		w.Matches = w.Set.Counters(l.checks.Hasher, &w.Request, w.Matches)
		if n := len(w.Matches); n > maxListed {
			return wire.Invalid("identifier", "chooses %d counters, more than %d; name a rule_id", n, maxListed)
		}
		return nil
	}
	rule := w.Set.Rule(w.Request.Domain, req.GetRuleId())
	if rule == nil {
		return status.Errorf(codes.NotFound, "rule_id: domain %q has no rule %q", w.Request.Domain, req.GetRuleId())
	}
	if rule.Unlimited {
		return wire.Invalid("rule_id", "%q is unlimited and counts nothing", rule.ID)
	}
	if w.Matches = rule.Counters(l.checks.Hasher, &w.Request, w.Matches); len(w.Matches) == 0 {
		return wire.Invalid("attributes", "rule %q counts by %s; give a value for each", rule.ID, countsBy(rule))
	}
	return nil
}

// countsBy lists the sets of attributes that choose a rule's counters.
func countsBy(r *rules.Rule) string {
	var sets []string
	for _, per := range r.Per {
		sets = append(sets, strings.Join(per, " and "))
	}
	return strings.Join(sets, ", or by ")
}

// resetDescriptors is ResetDescriptors without the audit log.
func (s healthServer) resetDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ResetRateLimitResponse, error) {
	if req.GetHits() != 0 {
		return nil, wire.Invalid("hits", "%d is not 0: a reset costs nothing", req.GetHits())
	}
	counters, err := s.limiter.envoy.Counters(ctx, req)
	if err != nil {
		return nil, err
	}
	w := s.limiter.newWork(ctx)
	defer s.limiter.works.Put(w)
	w.Matches = append(w.Matches, counters...)
	return s.limiter.reset(ctx, w)
}
