// Package embedded decides checks in this process, by the same rules and with the same
// answers as a node, without a network: for programs that run once, and for tests.
//
//	weir, err := embedded.New("domain: default\nrules:\n- {id: per-user, per: [user], limits: [{limit: 10, window: 1m}]}\n")
//	defer weir.Close()
//	answer, err := weir.Check(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice"})
//
// A Limiter is a [client.Checker], as a [client.Client] is, so that either can be passed where the other
// is. It counts for this process alone, and its counters end with it. In a bubble of testing/synctest it
// goes by the bubble's clock.
package embedded

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// partitions cuts the counters into so many tables, each with a lock of its own. A
// process has fewer processors than a cluster.
const partitions = 64

// Limiter decides checks by itself. It is safe for concurrent use; make it with New or
// Open, and Close it at the end.
type Limiter struct {
	limiter *api.Limiter
	service weirv1.RateLimiterServer

	stopped context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

// New returns a Limiter of the rules in a text, in the format of a rules file. Its error
// is what weir rules lint says of them.
func New(text string, opts ...Option) (*Limiter, error) {
	o, err := readOptions(opts)
	if err != nil {
		return nil, err
	}
	set, err := rules.Parse("rules", []byte(text))
	if err != nil {
		return nil, err
	}
	return build(func() *rules.Set { return set }, o)
}

// Open returns a Limiter of the rules in a file, or in the files of a directory, and
// follows their changes. A bad change is refused whole and logged; the last good rules
// stay.
func Open(path string, opts ...Option) (*Limiter, error) {
	o, err := readOptions(opts)
	if err != nil {
		return nil, err
	}
	source, err := rules.Open(path, rules.Options{}, o.log, o.metrics)
	if err != nil {
		return nil, err
	}
	l, err := build(source.Set, o)
	if err != nil {
		return nil, err
	}
	l.running.Go(func() { _ = source.Run(l.stopped) }) // it always returns nil
	return l, nil
}

func build(set func() *rules.Set, o options) (*Limiter, error) {
	counters, err := shard.New(shard.Config{Partitions: partitions, MaxBytes: o.memory, Metrics: o.metrics})
	if err != nil {
		return nil, fmt.Errorf("embedded: %w", err)
	}
	var secret [ring.SecretSize]byte
	_, _ = rand.Read(secret[:]) // it never fails
	l := &Limiter{limiter: api.NewLimiter(api.Config{
		Rules: set, Hasher: ring.NewHasher(secret), Decider: decider{counters}, Metrics: o.metrics,
	})}
	l.service = l.limiter.Server()
	l.stopped, l.stop = context.WithCancel(context.Background())
	l.running.Go(func() { _ = counters.Run(l.stopped) }) // it always returns nil
	return l, nil
}

// Close returns when all is at rest. Checks after it fail with client.ErrClosed.
func (l *Limiter) Close() error {
	l.limiter.Stop()
	l.stop()
	l.running.Wait()
	return nil
}

// Check decides whether one request may go on, and counts it if so. It does not wait, so
// that the deadline of ctx does not matter.
func (l *Limiter) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	answer, err := l.service.CheckRateLimit(ctx, req)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// CheckBatch decides up to 1000 independent requests. The answers stand in the order of
// the requests. One invalid request refuses the whole batch.
func (l *Limiter) CheckBatch(ctx context.Context, reqs []*weirv1.RateLimitRequest) ([]*weirv1.RateLimitResponse, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	batch, err := l.service.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: reqs})
	if err != nil {
		return nil, err
	}
	return batch.GetResponses(), nil
}

// Wait returns when the request may go on, as client.Wait does.
func (l *Limiter) Wait(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return client.Wait(ctx, l, req)
}

// Status returns the counters of an identifier across all rules, and counts nothing.
func (l *Limiter) Status(ctx context.Context, req *weirv1.RateLimitStatusRequest) (*weirv1.RateLimitStatusResponse, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	return l.service.GetRateLimitStatus(ctx, req)
}

// Explain tells how a request would be decided, and why, and counts nothing.
func (l *Limiter) Explain(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.ExplainRateLimitResponse, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	return l.service.ExplainRateLimit(ctx, req)
}

// Reset makes counters fresh ones.
func (l *Limiter) Reset(ctx context.Context, req *weirv1.ResetRateLimitRequest) (*weirv1.ResetRateLimitResponse, error) {
	if err := l.refusal(ctx); err != nil {
		return nil, err
	}
	return l.limiter.Reset(ctx, req)
}

// refusal returns the error of a call that is not answered: client.ErrClosed after Close, context.Canceled if ctx was
// canceled, else nil.
func (l *Limiter) refusal(ctx context.Context) error {
	switch {
	case l.stopped.Err() != nil:
		return client.ErrClosed
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	}
	return nil
}

// decider owns all counters. It implements api.Decider.
type decider struct{ shard *shard.Shard }

// Decide implements api.Decider.
func (d decider) Decide(_ context.Context, groups []shard.Group) { d.shard.Decide(groups) }

// HasTime implements api.Decider.
func (d decider) HasTime([]shard.Take, int) bool { return true }

// Owner implements api.Decider.
func (d decider) Owner(ring.Key) string { return "embedded" }

// Standby implements api.Decider.
func (d decider) Standby(ring.Key) string { return "" }
