package cluster

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// roleNames are what spans call the roles in which members are asked.
var roleNames = [...]string{asOwner: "owner", asStandby: "standby", asFormer: "former", asRelay: "relay"}

// tracerOf returns the tracer of the check of ctx, nil if that is not traced.
func (r *Router) tracerOf(ctx context.Context) trace.Tracer {
	if !r.traced {
		return nil
	}
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return span.TracerProvider().Tracer("github.com/weirlimit/weir")
	}
	return nil
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

// endHop ends a span, with whether all groups were decided.
func endHop(span trace.Span, groups []*shard.Group) {
	if span == nil {
		return
	}
	decided := 0
	for _, g := range groups {
		if !undecided(g) {
			decided++
		}
	}
	span.SetAttributes(attribute.Int("weir.groups", len(groups)), attribute.Int("weir.decided", decided))
	span.End()
}

// spanOfWait makes the span of the wait for a standby, whose answers were deferred since then. Zero makes none.
func (r *Router) spanOfWait(ctx context.Context, since time.Time) {
	if since.IsZero() {
		return
	}
	if tracer := r.tracerOf(ctx); tracer != nil {
		_, span := tracer.Start(ctx, "weir.strict_wait", trace.WithTimestamp(since))
		span.End()
	}
}
