package api

import (
	"context"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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

// ExplainDescriptors implements weirv1.RateLimiterServer.
func (s rateLimiter) ExplainDescriptors(ctx context.Context, req *weirv1.DescriptorsRequest) (*weirv1.ExplainDescriptorsResponse, error) {
	return s.envoy.Explain(ctx, req, s.limitStatus)
}
