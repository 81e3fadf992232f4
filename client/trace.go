package client

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

const (
	// traceparent is the name of W3C Trace Context for the span of a caller.
	traceparent = "traceparent"
	// traceparentLength is the length of its value in bytes, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.
	traceparentLength = 55
)

// WithTraceparent tells nodes which span a check belongs to: of returns it for the context of a call, as the traceparent of W3C Trace
// Context, 55 bytes. Empty means none, and what is malformed is not sent. It is called once for each attempt, and may be called
// concurrently. Streams carry only spans that are sampled, each call in a message of its own.
//
// With OpenTelemetry, whose modules this package does not import:
//
//	client.WithTraceparent(func(ctx context.Context) string {
//		carrier := make(propagation.MapCarrier)
//		propagation.TraceContext{}.Inject(ctx, carrier)
//		return carrier["traceparent"]
//	})
func WithTraceparent(of func(ctx context.Context) string) Option {
	return func(o *options) error {
		if of == nil {
			return errors.New("function of traceparents is nil")
		}
		o.traceparent = of
		return nil
	}
}

// spanOf returns the traceparent of ctx, empty if there is none or if it is malformed.
func (o *options) spanOf(ctx context.Context) string {
	if o.traceparent == nil {
		return ""
	}
	parent := o.traceparent(ctx)
	if len(parent) != traceparentLength || strings.Trim(parent, "0123456789abcdef-") != "" {
		return ""
	}
	return parent
}

// sampledSpanOf is spanOf for spans that are sampled. Others are no reason to send a message of their own.
func (o *options) sampledSpanOf(ctx context.Context) string {
	parent := o.spanOf(ctx)
	if parent == "" || !strings.ContainsRune("13579bdf", rune(parent[traceparentLength-1])) {
		return ""
	}
	return parent
}

// traceCall tells the node of a call of its own which span it belongs to.
func (o *options) traceCall(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if parent := o.spanOf(ctx); parent != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, traceparent, parent)
	}
	return invoke(ctx, method, request, reply, conn, options...)
}
