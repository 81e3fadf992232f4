package api

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// GetRateLimitStatus implements weirv1.RateLimiterServer.
func (s rateLimiter) GetRateLimitStatus(ctx context.Context, req *weirv1.RateLimitStatusRequest) (*weirv1.RateLimitStatusResponse, error) {
	w := s.newWork()
	defer s.works.Put(w)
	err := s.name(w, &weirv1.RateLimitRequest{
		Identifier: req.GetIdentifier(), IdentifierType: req.GetIdentifierType(), Endpoint: req.GetEndpoint(),
		Domain: req.GetDomain(), Attributes: req.GetAttributes(),
	})
	if err != nil {
		return nil, err
	}
	w.matches = w.set.Counters(s.hasher, &w.request, w.matches)
	resp := &weirv1.RateLimitStatusResponse{Omitted: uint32(max(0, len(w.matches)-maxListed))}
	w.matches = w.matches[:min(len(w.matches), maxListed)]
	if resp.Limits, err = s.look(ctx, w); err != nil {
		return nil, err
	}
	return resp, nil
}

// look returns the counters of w's matches as they are, and when one more token would
// have room. The error is errOverloaded, or nil.
func (l *Limiter) look(ctx context.Context, w *work) ([]*weirv1.LimitStatus, error) {
	for i := range w.matches {
		for cost := range int64(2) { // what it holds, and what it would answer
			w.groups = append(w.groups, shard.Group{Peek: true, Takes: []shard.Take{{
				Key: w.matches[i].Key, Limit: w.matches[i].Held(), Cost: cost,
				Shadow: w.matches[i].Shadow, OnFailure: policies[w.matches[i].Rule.OnFailure],
			}}})
		}
	}
	l.decider.Decide(ctx, w.groups)
	statuses := make([]*weirv1.LimitStatus, len(w.matches))
	for i := range w.matches {
		held, next := &w.groups[2*i].Takes[0], &w.groups[2*i+1].Takes[0]
		if sourceOf(held) == byOverload || sourceOf(next) == byOverload {
			return nil, errOverloaded
		}
		st, would := l.limitStatus(&w.matches[i], held), limitStatus(&w.matches[i], next)
		st.Allowed, st.RetryAfter, st.Delay, st.OverLimit = would.GetAllowed(), would.GetRetryAfter(), would.GetDelay(), would.GetOverLimit()
		statuses[i] = st
	}
	return statuses, nil
}

// limitStatus is limitStatus with the owner of the counter.
func (l *Limiter) limitStatus(m *rules.Match, t *shard.Take) *weirv1.LimitStatus {
	st := limitStatus(m, t)
	st.Owner = l.decider.Owner(m.Key)
	return st
}

// ExplainRateLimit implements weirv1.RateLimiterServer.
func (s rateLimiter) ExplainRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.ExplainRateLimitResponse, error) {
	w := s.newWork()
	defer s.works.Put(w)
	if err := s.add(w, req); err != nil {
		return nil, err
	}
	w.groups[0].Peek = true
	if err := s.decide(ctx, w); err != nil {
		return nil, err
	}
	resp := &weirv1.ExplainRateLimitResponse{Decision: w.render(0, w.judge(0), new(answer))}
	matches, takes := w.item(0)
	others := 0
	for _, e := range w.set.Explain(s.hasher, &w.request) {
		if !e.Matched {
			if others++; others > maxListed {
				resp.Omitted++
				continue
			}
		}
		explained := &weirv1.RuleExplanation{RuleId: e.Rule.ID, Applies: e.Matched, Reason: e.Reason}
		for i := range matches {
			if matches[i].Rule == e.Rule {
				explained.Limits = append(explained.Limits, s.limitStatus(&matches[i], &takes[i]))
			}
		}
		resp.Rules = append(resp.Rules, explained)
	}
	return resp, nil
}

// ResetRateLimit implements weirv1.RateLimiterHealthServer.
func (s healthServer) ResetRateLimit(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	return s.limiter.Reset(ctx, req)
}

// Reset makes counters fresh ones, for callers over gRPC and in this process.
func (l *Limiter) Reset(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	w := l.newWork()
	defer l.works.Put(w)
	if err := l.namedCounters(w, req); err != nil {
		return nil, err
	}
	for i := range w.matches {
		w.groups = append(w.groups, shard.Group{Reset: true, Takes: []shard.Take{{Key: w.matches[i].Key, Limit: w.matches[i].Held()}}})
	}
	l.decider.Decide(ctx, w.groups)
	resp := &weirv1.ResetRateLimitResponse{}
	var owners []string // of counters that were not reset
	overloaded := 0
	for i := range w.matches {
		st := l.limitStatus(&w.matches[i], &w.groups[i].Takes[0])
		switch w.groups[i].Takes[0].Source {
		case shard.Owner, shard.Standby:
		case shard.Overloaded:
			overloaded++
			fallthrough
		default:
			owners = append(owners, st.GetOwner())
		}
		resp.Limits = append(resp.Limits, st)
	}
	if len(owners) > 0 {
		return nil, notReset(owners, overloaded, len(w.matches))
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

// namedCounters makes w.matches the counters that req names.
func (l *Limiter) namedCounters(w *work, req *weirv1.ResetRateLimitRequest) error {
	if req.GetIdentifier() == "" && req.GetIdentifierType() == "" && req.GetRuleId() != "" {
		w.request.Domain = cmp.Or(req.GetDomain(), DefaultDomain)
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
		w.matches = w.set.Counters(l.hasher, &w.request, w.matches)
		if n := len(w.matches); n > maxListed {
			return invalid("identifier", "chooses %d counters, more than %d; name a rule_id", n, maxListed)
		}
		return nil
	}
	rule := w.set.Rule(w.request.Domain, req.GetRuleId())
	if rule == nil {
		return status.Errorf(codes.NotFound, "rule_id: domain %q has no rule %q", w.request.Domain, req.GetRuleId())
	}
	if rule.Unlimited {
		return invalid("rule_id", "%q is unlimited and counts nothing", rule.ID)
	}
	if w.matches = rule.Counters(l.hasher, &w.request, w.matches); len(w.matches) == 0 {
		return invalid("attributes", "rule %q counts by %s; give a value for each", rule.ID, countsBy(rule))
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
