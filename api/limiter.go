package api

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// DefaultDomain is the domain of requests that name none.
const DefaultDomain = "default"

const endpointAttribute = "endpoint"

// rateLimiter implements weirv1.RateLimiterServer.
type rateLimiter struct {
	weirv1.UnimplementedRateLimiterServer
	*Limiter
}

// CheckRateLimit implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	start := time.Now()
	w := s.newWork()
	defer s.works.Put(w)
	if err := s.add(w, req); err != nil {
		return nil, err
	}
	s.decide(ctx, w)
	if err := s.shed(w); err != nil {
		return nil, err
	}
	resp := s.answer(w, 0, new(answer))
	s.metrics.check.Observe(time.Since(start).Seconds())
	return resp, nil
}

// CheckRateLimitBatch implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimitBatch(ctx context.Context, req *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	responses, err := s.checkAll(ctx, req.GetRequests(), s.metrics.batch)
	if err != nil {
		return nil, err
	}
	return &weirv1.RateLimitBatchResponse{Responses: responses}, nil
}

// checkAll decides independent requests, and observes how long it took in seconds.
func (l *Limiter) checkAll(ctx context.Context, reqs []*weirv1.RateLimitRequest, took prometheus.Observer) ([]*weirv1.RateLimitResponse, error) {
	start := time.Now()
	switch n := len(reqs); {
	case n == 0:
		return nil, invalid("requests", "must not be empty")
	case n > maxBatch:
		return nil, invalid("requests", "%d items are more than %d", n, maxBatch)
	}
	w := l.newWork()
	defer l.works.Put(w)
	for i, r := range reqs {
		if err := l.add(w, r); err != nil {
			return nil, ofItem(i, err)
		}
	}
	l.decide(ctx, w)
	if err := l.shed(w); err != nil {
		return nil, err
	}
	answers, responses := make([]answer, len(w.items)), make([]*weirv1.RateLimitResponse, len(w.items))
	for i := range w.items {
		responses[i] = l.answer(w, i, &answers[i])
	}
	took.Observe(time.Since(start).Seconds())
	return responses, nil
}

// add validates req and adds its group to w.
func (l *Limiter) add(w *work, req *weirv1.RateLimitRequest) error {
	if err := l.name(w, req); err != nil {
		return err
	}
	tokens := req.GetTokensRequested()
	if tokens == 0 {
		tokens = 1
	}
	if err := l.match(w, tokens); err != nil {
		return err
	}
	if err := w.endGroup(req.GetPeek()); err != nil {
		return err
	}
	if req.GetLease() > 0 {
		w.lease(req.GetLease(), tokens)
	}
	w.groups[len(w.groups)-1].LentAt = req.GetDebitedAt()
	return nil
}

// name validates req and makes it w.request.
func (l *Limiter) name(w *work, req *weirv1.RateLimitRequest) error {
	if err := validate(req); err != nil {
		return err
	}
	w.request.Domain = req.GetDomain()
	if w.request.Domain == "" {
		w.request.Domain = DefaultDomain
	}
	attributes := w.request.Attributes[:0]
	attributes = append(attributes, rules.Attribute{Key: req.GetIdentifierType(), Value: req.GetIdentifier()})
	if req.GetEndpoint() != "" {
		attributes = append(attributes, rules.Attribute{Key: endpointAttribute, Value: req.GetEndpoint()})
	}
	for key, value := range req.GetAttributes() {
		attributes = append(attributes, rules.Attribute{Key: key, Value: value})
	}
	w.request.Attributes = attributes
	return nil
}

func validate(req *weirv1.RateLimitRequest) error {
	if err := within("identifier", req.GetIdentifier(), maxValue); err != nil {
		return err
	}
	if err := within("identifier_type", req.GetIdentifierType(), maxKey); err != nil {
		return err
	}
	switch req.GetIdentifierType() {
	case endpointAttribute:
		return invalid("identifier_type", "%q is the name of another field", endpointAttribute)
	case rules.IPAttribute:
		if !rules.ValidIP(req.GetIdentifier()) {
			return invalid("identifier", "%q is not an IP address", req.GetIdentifier())
		}
	}
	if err := atMost("endpoint", req.GetEndpoint(), maxValue); err != nil {
		return err
	}
	if err := validCost("tokens_requested", req.GetTokensRequested()); err != nil {
		return err
	}
	if err := validLease(req); err != nil {
		return err
	}
	if err := atMost("domain", req.GetDomain(), maxKey); err != nil {
		return err
	}
	if len(req.GetAttributes()) == 0 {
		return nil
	}
	return validateAttributes(req)
}

func validateAttributes(req *weirv1.RateLimitRequest) error {
	const field = "attributes"
	if n := len(req.GetAttributes()); n > extraAttributes {
		return invalid(field, "%d entries are more than %d", n, extraAttributes)
	}
	for key, value := range req.GetAttributes() {
		if err := within(field+": key", key, maxKey); err != nil {
			return err
		}
		if key == endpointAttribute || key == req.GetIdentifierType() {
			return invalid(fmt.Sprintf("%s[%q]", field, key), "is set by another field already")
		}
		if len(value) > maxValue { // only then: the name of the field costs
			return atMost(fmt.Sprintf("%s[%q]", field, key), value, maxValue)
		}
	}
	return nil
}

// ceilSeconds rounds nanoseconds up to seconds.
func ceilSeconds(ns int64) int64 {
	s := ns / int64(time.Second)
	if ns%int64(time.Second) > 0 {
		s++
	}
	return s
}
