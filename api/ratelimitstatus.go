package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// GetRateLimitStatus implements weirv1.RateLimiterServer.
func (s rateLimiter) GetRateLimitStatus(ctx context.Context, req *weirv1.RateLimitStatusRequest) (*weirv1.RateLimitStatusResponse, error) {
	w := s.newWork(ctx)
	defer s.works.Put(w)
	err := s.name(w, &weirv1.RateLimitRequest{
		Identifier: req.GetIdentifier(), IdentifierType: req.GetIdentifierType(), Endpoint: req.GetEndpoint(),
		Domain: req.GetDomain(), Attributes: req.GetAttributes(),
	})
	if err != nil {
		return nil, err
	}
	w.Matches = w.Set.Counters(s.checks.Hasher, &w.Request, w.Matches)
	resp := &weirv1.RateLimitStatusResponse{Omitted: uint32(max(0, len(w.Matches)-maxListed))}
	w.Matches = w.Matches[:min(len(w.Matches), maxListed)]
	if resp.Limits, err = s.look(ctx, w); err != nil {
		return nil, err
	}
	return resp, nil
}

// look returns the counters of w's matches as they are, and when one more token would
// have room. The error is check.ErrOverloaded, or nil.
func (l *Limiter) look(ctx context.Context, w *work) ([]*weirv1.LimitStatus, error) {
	for i := range w.Matches {
		for cost := range int64(2) { // what it holds, and what it would answer
			w.Groups = append(w.Groups, shard.Group{Peek: true, Takes: []shard.Take{{
				Key: w.Matches[i].Key, Limit: w.Matches[i].Held(), Cost: cost,
				Shadow: w.Matches[i].Shadow, OnFailure: check.PolicyOf(w.Matches[i].Rule),
			}}})
		}
	}
	l.checks.Decider.Decide(ctx, w.Groups)
	statuses := make([]*weirv1.LimitStatus, len(w.Matches))
	for i := range w.Matches {
		held, next := &w.Groups[2*i].Takes[0], &w.Groups[2*i+1].Takes[0]
		if check.SourceOf(held) == check.ByOverload || check.SourceOf(next) == check.ByOverload {
			return nil, check.ErrOverloaded
		}
		st, would := l.limitStatus(&w.Matches[i], held), limitStatus(&w.Matches[i], next)
		st.Allowed, st.RetryAfter, st.Delay, st.OverLimit = would.GetAllowed(), would.GetRetryAfter(), would.GetDelay(), would.GetOverLimit()
		statuses[i] = st
	}
	return statuses, nil
}

// limitStatus is limitStatus with the owner and the standby of the counter.
func (l *Limiter) limitStatus(m *rules.Match, t *shard.Take) *weirv1.LimitStatus {
	st := limitStatus(m, t)
	st.Owner, st.Standby = l.checks.Decider.Owner(m.Key), l.checks.Decider.Standby(m.Key)
	return st
}

// ExplainRateLimit implements weirv1.RateLimiterServer.
func (s rateLimiter) ExplainRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.ExplainRateLimitResponse, error) {
	w := s.newWork(ctx)
	defer s.works.Put(w)
	if err := s.name(w, req); err != nil {
		return nil, err
	}
	if err := s.add(w, req); err != nil {
		return nil, err
	}
	w.Groups[0].Peek = true
	if err := s.checks.Decide(ctx, &w.Work); err != nil {
		return nil, err
	}
	resp := &weirv1.ExplainRateLimitResponse{Decision: w.render(0, w.Judge(0), new(answer))}
	matches, takes := w.Item(0)
	others := 0
	for _, e := range w.Set.Explain(s.checks.Hasher, &w.Request) {
		if !e.Applies {
			if others++; others > maxListed {
				resp.Omitted++
				continue
			}
		}
		explained := &weirv1.RuleExplanation{RuleId: e.Rule.ID, Applies: e.Applies, Reason: e.Reason}
		for i := range matches {
			if matches[i].Rule == e.Rule {
				explained.Limits = append(explained.Limits, s.limitStatus(&matches[i], &takes[i]))
			}
		}
		resp.Rules = append(resp.Rules, explained)
	}
	return resp, nil
}

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

// notReset is the error for a reset of so many counters, of which some were not reset: those
// of these owners, overloaded of them for want of time.
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

// ExplainDescriptors implements weirv1.RateLimiterServer.
func (s rateLimiter) ExplainDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ExplainDescriptorsResponse, error) {
	return s.envoy.Explain(ctx, req, s.limitStatus)
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
