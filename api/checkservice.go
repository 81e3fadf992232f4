package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const endpointAttribute = "endpoint"

// rateLimiter implements weirv1.RateLimiterServer.
type rateLimiter struct {
	weirv1.UnsafeRateLimiterServer // the compiler names a method that is missing
	*Limiter
}

// Server returns the service of l for callers in this process. Over gRPC there is
// Register.
func (l *Limiter) Server() weirv1.RateLimiterServer { return rateLimiter{Limiter: l} }

// CheckRateLimit implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimit(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return wire.Decoded(ctx, s.check, req, new(weirv1.RateLimitResponse))
}

// CheckRateLimitBatch implements weirv1.RateLimiterServer.
func (s rateLimiter) CheckRateLimitBatch(ctx context.Context, req *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	return wire.Decoded(ctx, s.checkBatch, req, new(weirv1.RateLimitBatchResponse))
}

// check answers a RateLimitRequest.
func (l *Limiter) check(ctx context.Context, request wire.Part) (wire.Encoded, error) {
	if err := ctx.Err(); err != nil { // the caller has gone
		return wire.Encoded{}, l.checks.Failed("check", status.FromContextError(err).Err())
	}
	start := time.Now()
	w := l.newWork(ctx)
	defer l.works.Put(w)
	w.API, w.Start = "check", start
	ctx = l.checks.StartSpan(ctx, &w.Work, w.API)
	defer w.EndSpan()
	if err := decodeRequest(request, &w.decoded); err != nil {
		return wire.Encoded{}, l.checks.Failed("check", err)
	}
	if err := l.addAdmitted(ctx, w); err != nil {
		return wire.Encoded{}, l.failed("check", err)
	}
	if err := l.checks.Decide(ctx, &w.Work); err != nil {
		return wire.Encoded{}, l.checks.Failed("check", err)
	}
	var verdicts check.VerdictCounts
	w.out = appendResponse(w.out[:0], w.answer(0, &verdicts))
	l.checks.CountVerdicts(&verdicts)
	w.Observe(l.duration.check)
	return wire.CopyEncoded(w.out), nil
}

// checkBatch answers a RateLimitBatchRequest.
func (l *Limiter) checkBatch(ctx context.Context, request wire.Part) (wire.Encoded, error) {
	if err := ctx.Err(); err != nil { // the caller has gone
		return wire.Encoded{}, l.checks.Failed("batch", status.FromContextError(err).Err())
	}
	start := time.Now()
	w := l.newWork(ctx)
	defer l.works.Put(w)
	w.API, w.Start = "batch", start
	ctx = l.checks.StartSpan(ctx, &w.Work, w.API)
	defer w.EndSpan()
	if err := decodeBatch(request, &w.list); err != nil {
		return wire.Encoded{}, l.checks.Failed("batch", err)
	}
	if err := l.checkAll(ctx, w); err != nil {
		return wire.Encoded{}, l.failed("batch", err)
	}
	w.out = l.appendAnswers(w.out[:0], w, 1)
	w.Observe(l.duration.batch)
	return wire.CopyEncoded(w.out), nil
}

// sample is after how many checks of a batch it is looked whether owners have time for them.
const sample = 16

// checkAll decides the requests of w.list, which are independent. The domain of the first one stands for all where calls are refused.
func (l *Limiter) checkAll(ctx context.Context, w *work) error {
	switch n := w.list.N; {
	case n == 0:
		return wire.Invalid("requests", "must not be empty")
	case n > maxBatch:
		return wire.Invalid("requests", "%d items are more than %d", n, maxBatch)
	}
	for i, p := range w.list.Parts {
		if err := decodeRequest(p, &w.decoded); err != nil {
			return ofItem(i, err)
		}
		if err := l.name(w, &w.decoded); err != nil {
			return ofItem(i, err)
		}
		if i == 0 {
			if err := l.admit(ctx, w, w.list.N); err != nil {
				return err
			}
		}
		if err := l.add(w, &w.decoded); err != nil {
			return ofItem(i, err)
		}
		if i == sample-1 && w.list.N >= 2*sample {
			if err := l.admitBatch(ctx, w, w.list.N); err != nil {
				return err
			}
		}
	}
	return l.checks.Decide(ctx, &w.Work)
}

// appendAnswers appends the answers to all items to b, each as a field of that number,
// and counts them.
func (l *Limiter) appendAnswers(b []byte, w *work, number protowire.Number) []byte {
	var verdicts check.VerdictCounts
	for i := range w.Items {
		var begin int
		b, begin = wire.BeginMessage(b, number)
		b = appendResponse(b, w.answer(i, &verdicts))
		b = wire.EndMessage(b, begin)
	}
	l.checks.CountVerdicts(&verdicts)
	return b
}

// addAdmitted adds the group of w.decoded to w, if there is time for it.
func (l *Limiter) addAdmitted(ctx context.Context, w *work) error {
	if err := l.name(w, &w.decoded); err != nil {
		return err
	}
	if err := l.admit(ctx, w, 1); err != nil {
		return err
	}
	return l.add(w, &w.decoded)
}

// add adds the group of req, which name has made w.Request, to w.
func (l *Limiter) add(w *work, req *weirv1.RateLimitRequest) error {
	tokens := req.GetTokensRequested()
	if tokens == 0 {
		tokens = 1
	}
	l.checks.Note(&w.Work, tokens)
	if err := l.checks.Match(&w.Work, tokens); err != nil {
		return err
	}
	if err := w.endGroup(req.GetPeek()); err != nil {
		return err
	}
	if req.GetLease() > 0 {
		w.lease(req.GetLease(), tokens)
	}
	w.Groups[len(w.Groups)-1].LentAt = req.GetDebitedAt()
	return nil
}

// name validates req and makes it w.Request.
func (l *Limiter) name(w *work, req *weirv1.RateLimitRequest) error {
	if err := validate(req); err != nil {
		return err
	}
	w.Request.Domain = req.GetDomain()
	if w.Request.Domain == "" {
		w.Request.Domain = DefaultDomain
	}
	if err := w.MayAsk(); err != nil {
		return err
	}
	if err := w.hasRules(); err != nil {
		return err
	}
	attributes := w.Request.Attributes[:0] // as appendAttributes, without a call
	attributes = append(attributes, rules.Attribute{Key: req.GetIdentifierType(), Value: req.GetIdentifier()})
	if req.GetEndpoint() != "" {
		attributes = append(attributes, rules.Attribute{Key: endpointAttribute, Value: req.GetEndpoint()})
	}
	for key, value := range req.GetAttributes() {
		attributes = append(attributes, rules.Attribute{Key: key, Value: value})
	}
	w.Request.Attributes = attributes
	return nil
}

// appendAttributes appends the attributes of a request.
func appendAttributes(attributes []rules.Attribute, req *weirv1.RateLimitRequest) []rules.Attribute {
	attributes = append(attributes, rules.Attribute{Key: req.GetIdentifierType(), Value: req.GetIdentifier()})
	if req.GetEndpoint() != "" {
		attributes = append(attributes, rules.Attribute{Key: endpointAttribute, Value: req.GetEndpoint()})
	}
	for key, value := range req.GetAttributes() {
		attributes = append(attributes, rules.Attribute{Key: key, Value: value})
	}
	return attributes
}

// decodedAgain is a work that decodes for the lists of keys.
type decodedAgain work

// Again implements check.ItemDecoder. The request was decoded once, so that there is no error.
func (w *decodedAgain) Again(i int) rules.Request {
	var req weirv1.RateLimitRequest
	if i >= len(w.list.Parts) || decodeRequest(w.list.Parts[i], &req) != nil {
		return rules.Request{}
	}
	return rules.Request{Domain: cmp.Or(req.GetDomain(), DefaultDomain), Attributes: appendAttributes(nil, &req)}
}

// hasRules refuses a domain whose limits would not be looked at.
func (w *work) hasRules() error {
	if w.Set.Descriptors(w.Request.Domain) != nil {
		return wire.Invalid("domain", "%q has descriptors, which only Envoy's API reads; ask with ShouldRateLimit, POST /json, or weir check --descriptor", w.Request.Domain)
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
		return wire.Invalid("identifier_type", "%q is the name of another field", endpointAttribute)
	case rules.IPAttribute:
		if !rules.ValidIP(req.GetIdentifier()) {
			return wire.Invalid("identifier", "%q is not an IP address", req.GetIdentifier())
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
		return wire.Invalid(field, "%d entries are more than %d", n, extraAttributes)
	}
	for key, value := range req.GetAttributes() {
		if err := within(field+": key", key, maxKey); err != nil {
			return err
		}
		if key == endpointAttribute || key == req.GetIdentifierType() {
			return wire.Invalid(fmt.Sprintf("%s[%q]", field, key), "is set by another field already")
		}
		if len(value) > maxValue { // only then: the name of the field costs
			return atMost(fmt.Sprintf("%s[%q]", field, key), value, maxValue)
		}
	}
	return nil
}
