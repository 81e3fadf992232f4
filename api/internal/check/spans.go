package check

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
)

// StartSpan begins the span of a call of w, if it is traced. EndSpan must follow.
func (c *Checker) StartSpan(ctx context.Context, w *Work, api string) context.Context {
	if c.Tracing == nil {
		return ctx
	}
	ctx, w.span = c.Tracing.Start(ctx, "weir.check")
	if w.span != nil {
		w.span.SetAttributes(attribute.String("weir.api", api))
	}
	return ctx
}

// EndSpan ends the span of a call; one that was not decided is an error.
func (w *Work) EndSpan() {
	if w.span != nil {
		w.endSpan()
	}
}

func (w *Work) endSpan() {
	if !w.told {
		w.span.SetStatus(codes.Error, "not decided")
	}
	w.span.End()
}

// TellSpan has the span of a call say what became of it: of its first item, and how many there are. No attribute has a
// value of an identifier.
func (c *Checker) TellSpan(w *Work, allowed bool, v Verdict) {
	if w.span == nil {
		return
	}
	w.told = true
	w.span.SetAttributes(
		attribute.String("weir.domain", w.Request.Domain), attribute.Bool("weir.allowed", allowed), attribute.String("weir.source", sourceNames[v.Source]),
		attribute.Int("weir.checks", len(w.Items)), attribute.String("weir.rules_hash", w.Set.Hash()),
	)
	if v.By < 0 || len(w.Items) == 0 {
		return
	}
	matches, takes := w.Item(0)
	if v.By >= len(takes) {
		return
	}
	w.span.SetAttributes(attribute.String("weir.owner", c.Decider.Owner(takes[v.By].Key)))
	if r := matches[v.By].Rule; r != nil {
		w.span.SetAttributes(attribute.String("weir.rule", r.ID))
	}
}
