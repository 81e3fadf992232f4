package api

import (
	"context"

	"github.com/weirlimit/weir/api/internal/check"
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
