package cluster

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// roleNames are what spans call the roles in which members are asked.
var roleNames = [...]string{asOwner: "owner", asStandby: "standby", asRelay: "relay"}

// tracerOf returns the tracer of the check of ctx, nil if that is not traced.
func (r *Router) tracerOf(ctx context.Context) trace.Tracer {
	if r.tracer == nil || !trace.SpanFromContext(ctx).IsRecording() {
		return nil
	}
	return r.tracer
}

// startHop begins the span of what a member is asked, nil if the check of ctx is not traced.
func (r *Router) startHop(ctx context.Context, to Member, how role) trace.Span {
	tracer := r.tracerOf(ctx)
	if tracer == nil {
		return nil
	}
	_, span := tracer.Start(ctx, "weir.hop", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(
		attribute.String("weir.peer", to.ID), attribute.String("weir.role", roleNames[how])))
	return span
}

// contextOf returns what a peer is told of a span, nil if there is none.
func contextOf(span trace.Span) *trace.SpanContext {
	if span == nil {
		return nil
	}
	c := span.SpanContext()
	return &c
}

// endHop ends a span, with whether all groups were decided.
func endHop(span trace.Span, groups []*shard.Group) {
	if span == nil {
		return
	}
	decided := 0
	for _, g := range groups {
		decided += int(boolByte(!undecided(g)))
	}
	span.SetAttributes(attribute.Int("weir.groups", len(groups)), attribute.Int("weir.decided", decided))
	span.End()
}

// hopOf returns the span of the hop on which g was asked for, nil if it has none.
func (s *scatter) hopOf(asked *shard.Group) trace.Span {
	for i := range s.dispatches {
		for _, g := range s.dispatches[i].groups {
			if g == asked {
				return s.dispatches[i].hop
			}
		}
	}
	return nil
}

// spanOfWait makes the span of the wait for a standby, if answers were deferred. It belongs to the hop on which the first
// of them was, or else to the check of ctx.
func (w *walk) spanOfWait(ctx context.Context) {
	if w.deferred.IsZero() {
		return
	}
	if tracer := w.top.router.tracerOf(ctx); tracer != nil {
		if w.hop != nil {
			ctx = trace.ContextWithSpan(ctx, w.hop)
		}
		_, span := tracer.Start(ctx, "weir.strict_wait", trace.WithTimestamp(w.deferred))
		span.End()
	}
}

// decision is the span of what this node decides about some of the groups that it was asked for together.
type decision struct {
	span       trace.Span
	first, end int // of the groups
}

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

// endDecisions ends spans, with what was decided about their groups.
func endDecisions(spans []decision, groups []shard.Group) {
	for _, d := range spans {
		endDecision(d.span, groups[d.first:d.end])
	}
}

// sourceNames are what spans call the sources of decisions that are made for other nodes, as the metrics of checks do.
var sourceNames = map[shard.Source]string{
	shard.Owner: "owner", shard.Deferred: "owner", shard.Relayed: "relayed", shard.Provisional: "provisional", shard.Overloaded: "overload",
}

// endDecision ends a span, with where the first decision about groups comes from.
func endDecision(span trace.Span, groups []shard.Group) {
	decided, source := 0, ""
	for i := range groups {
		g := &groups[i]
		if undecided(g) && !isDeferred(g) {
			continue
		}
		if decided++; source == "" {
			source = sourceNames[g.Takes[0].Source]
		}
	}
	span.SetAttributes(attribute.Int("weir.groups", len(groups)), attribute.Int("weir.decided", decided))
	if source != "" {
		span.SetAttributes(attribute.String("weir.source", source))
	}
	span.End()
}
