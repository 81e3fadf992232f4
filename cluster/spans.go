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

// decision is the span of what this node decides about some of the groups that it was asked for together.
type decision struct {
	span       trace.Span
	first, end int // of the groups
}
