package cluster

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// ownReplicas decides from the replicas of this node: as the owner from its counters, or as the standby from copies. It answers
// this node's own checks and those of other nodes.
type ownReplicas struct {
	router       *Router // asks other nodes
	local        Local
	locator      Locator            // set by NewOwners
	denialLeases *GivenDenialLeases // of this node as an owner
}

// decideHere has the local shard decide, as GivenDenialLeases.decide does, and again what it may not decide
// just now because its decision lease is suspended.
func (o *ownReplicas) decideHere(groups []shard.Group, due time.Time) (wait time.Duration) {
	wait = o.denialLeases.decide(o.local, groups)
	wait = max(wait, o.decideOnceResumed(o.local, groups, nil, due))
	return max(wait, o.decideApart(o.local, groups))
}

// decideOnceResumed has the local shard decide again what this node holds and could not decide
// because its decision lease is suspended. It waits until that is valid, but not for long, and until due at most, unless that is zero. Others' requests
// are run: what the asker has given up meanwhile stays Undecided.
func (o *ownReplicas) decideOnceResumed(local Local, groups []shard.Group, run []request, due time.Time) (wait time.Duration) {
	t, waited := o.router.table.Load(), false
	if t == nil {
		return 0
	}
	for i := range groups {
		g := &groups[i]
		if !redirected(g) || !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return isRedirected(take) && t.isOwnerOf(take.Key) }) {
			continue
		}
		if resumed := o.locator.Returning(); resumed != nil && !waited {
			waited = true
			patience := min(o.router.attempt/2, resumePatience)
			if !due.IsZero() {
				patience = min(patience, time.Until(due))
			}
			pauseFor(resumed, patience)
		}
		forget(g)
		if run == nil || !run[i].lateAt(time.Now()) {
			wait = max(wait, o.denialLeases.decide(local, groups[i:i+1]))
		}
	}
	return wait
}

// decideApart decides from copies what this node owns and waits for, while it reaches none that it waits for.
func (o *ownReplicas) decideApart(local Local, groups []shard.Group) (wait time.Duration) {
	t := o.router.table.Load()
	if t == nil {
		return 0
	}
	isProvisional := func(take shard.Take) bool { return o.locator.DecidesProvisionally(t.partition(take.Key)) }
	for i := range groups {
		g := &groups[i]
		if !redirected(g) || !slices.ContainsFunc(g.Takes, isProvisional) ||
			slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return !isProvisional(take) && !t.isOwnerOf(take.Key) }) {
			continue
		}
		forget(g)
		g.Lend, g.Provisional = 0, true // what this node decides as the owner, it does not decide without the decision lease
		wait = max(wait, o.denialLeases.decide(local, groups[i:i+1]))
	}
	return wait
}

// patience is how long what is asked of a standby waits for what is relayed: the asker waits for an attempt. So does one that is this node: its client
// waits for two, of which the owner has cost one, and turns to another node then.
func (o *ownReplicas) patience() time.Duration { return min(o.router.attempt*3/4, relayPatience) }

// startDecisions begins a span for each hop of other nodes to which requests of run belong. The context is of the first, for what this
// node asks others meanwhile.
func (o *ownReplicas) startDecisions(run []request) (ctx context.Context, spans []decision) {
	ctx = context.Background()
	if o.router.tracer == nil {
		return ctx, nil
	}
	for i := range run {
		q := &run[i]
		switch last := len(spans) - 1; {
		case q.span == nil, q.op == opDeferred: // that is decided already
		case last >= 0 && spans[last].end == i && run[i-1].span == q.span:
			spans[last].end++
		case q.span.IsSampled():
			of, span := o.startDecision(trace.ContextWithRemoteSpanContext(context.Background(), *q.span), &q.group, q.how)
			if spans == nil {
				ctx = of
			}
			spans = append(spans, decision{span, i, i + 1})
		}
	}
	return ctx, spans
}

// startDecision begins the span of what this node decides about g and others, as what it was asked for them.
func (o *ownReplicas) startDecision(ctx context.Context, g *shard.Group, how role) (context.Context, trace.Span) {
	return o.router.tracer.Start(ctx, "weir.decide", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("weir.role", roleNames[how]), attribute.String("weir.owner", o.router.Owner(g.Takes[0].Key))))
}
