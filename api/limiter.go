package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

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

// Server returns the service of l for callers in this process. Over gRPC there is
// Register.
func (l *Limiter) Server() weirv1.RateLimiterServer { return rateLimiter{Limiter: l} }

// CheckRateLimit implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return decoded(ctx, s.check, req, new(weirv1.RateLimitResponse))
}

// CheckRateLimitBatch implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimitBatch(ctx context.Context, req *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	return decoded(ctx, s.checkBatch, req, new(weirv1.RateLimitBatchResponse))
}

// check answers a RateLimitRequest.
func (l *Limiter) check(ctx context.Context, request []byte) (encoded, error) {
	start := time.Now()
	w := l.newWork()
	defer l.works.Put(w)
	if err := decodeRequest(newPart(request), &w.decoded); err != nil {
		return encoded{}, err
	}
	if err := l.add(w, &w.decoded); err != nil {
		return encoded{}, err
	}
	if err := l.decide(ctx, w); err != nil {
		return encoded{}, err
	}
	var verdicts verdictCounts
	w.out = appendResponse(w.out[:0], w.answer(0, &verdicts))
	l.metrics.count(&verdicts)
	l.metrics.check.Observe(time.Since(start).Seconds())
	return copyEncoded(w.out), nil
}

// checkBatch answers a RateLimitBatchRequest.
func (l *Limiter) checkBatch(ctx context.Context, request []byte) (encoded, error) {
	start := time.Now()
	w := l.newWork()
	defer l.works.Put(w)
	if err := decodeBatch(newPart(request), &w.list); err != nil {
		return encoded{}, err
	}
	if err := l.checkAll(ctx, w); err != nil {
		return encoded{}, err
	}
	w.out = l.appendAnswers(w.out[:0], w, 1)
	l.metrics.batch.Observe(time.Since(start).Seconds())
	return copyEncoded(w.out), nil
}

// checkAll decides the requests of w.list, which are independent.
func (l *Limiter) checkAll(ctx context.Context, w *work) error {
	switch n := w.list.n; {
	case n == 0:
		return invalid("requests", "must not be empty")
	case n > maxBatch:
		return invalid("requests", "%d items are more than %d", n, maxBatch)
	}
	for i, p := range w.list.parts {
		if err := decodeRequest(p, &w.decoded); err != nil {
			return ofItem(i, err)
		}
		if err := l.add(w, &w.decoded); err != nil {
			return ofItem(i, err)
		}
	}
	return l.decide(ctx, w)
}

// appendAnswers appends the answers to all items to b, each as a field of that number,
// and counts them.
func (l *Limiter) appendAnswers(b []byte, w *work, number protowire.Number) []byte {
	var verdicts verdictCounts
	for i := range w.items {
		var begin int
		b, begin = beginMessage(b, number)
		b = appendResponse(b, w.answer(i, &verdicts))
		b = endMessage(b, begin)
	}
	l.metrics.count(&verdicts)
	return b
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
	if err := w.hasRules(); err != nil {
		return err
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

// hasRules refuses a domain whose limits would not be looked at.
func (w *work) hasRules() error {
	if w.set.Descriptors(w.request.Domain) != nil {
		return invalid("domain", "%q has descriptors, which only Envoy's API reads; ask with ShouldRateLimit or POST /json", w.request.Domain)
	}
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
