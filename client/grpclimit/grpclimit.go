// Package grpclimit limits a gRPC server, by interceptors:
//
//	weir, err := client.New("10.0.0.1:9090") // or embedded.New(rules), without a node
//	limit, err := grpclimit.New(weir, grpclimit.User(userOf))
//	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// A stream is one request, at its beginning.
//
// # What rules see
//
// The callers that options name, such as "user" and "api_key"; "ip", the client's address; and "endpoint",
// the full method, such as "/shop.v1.Orders/List". The first caller that a request has is its identifier;
// rules see no difference. A request that nodes would refuse, such as one with a key of more than 256
// bytes, fails with INVALID_ARGUMENT, as it must not be a way around the limits.
//
// # What clients see
//
// In the header metadata of allowed requests, the fields of package headers, in the style of WithStyle. A
// denied request fails with RESOURCE_EXHAUSTED and the details ErrorInfo, QuotaFailure and, if a wait
// helps, RetryInfo, which client.Retry obeys; the trailer grpc-retry-pushback-ms says the same to gRPC's
// own retries. One for which Weir has no time fails with UNAVAILABLE. If a rule books a turn for a request
// (max_delay, leaky_bucket), it waits here for as long as its context lets it.
//
// # When no node answers
//
// A decision takes 100 ms at most, or what WithTimeout says. After that the request is allowed, and its
// answer marked as SOURCE_FAIL_OPEN: see Answer and OnAnswer. With WithFailClosed it is denied instead.
//
// If all nodes refuse the certificate or the token of this server, calls fail with INTERNAL in either case. OnError has the
// reason.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/internal/middleware"
	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// pushback is the trailer in which a server tells gRPC's own retries how long to wait, in
// milliseconds; what is negative tells them not to. See gRPC proposal A6.
const pushback = "grpc-retry-pushback-ms"

// overloadPause is how long a client waits that was turned away for lack of time.
const overloadPause = time.Second

// Limit holds the interceptors of a server. It is safe for concurrent use; make it with
// New.
type Limit struct {
	admission *middleware.Admission[context.Context]
}

// New returns a Limit that asks limiter about every request. It fails only for options
// that make no sense.
func New(limiter client.Checker, opts ...Option) (*Limit, error) {
	opts = append(slices.Clip(opts), IP()) // behind those of the caller, who may have said it already
	a, err := middleware.New(limiter, middleware.Config[context.Context]{Endpoint: method}, opts)
	if err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return &Limit{admission: a}, nil
}

// Answer returns the answer that allowed a request, from its context. It is nil without a check.
func Answer(ctx context.Context) *weirv1.RateLimitResponse { return middleware.AnswerOf(ctx) }

// method returns the full method that is called.
func method(ctx context.Context) string {
	full, _ := grpc.Method(ctx) // "" if there is no call
	return full
}

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limit) Unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, err := l.admit(ctx)
	if err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

// Stream is a grpc.StreamServerInterceptor.
func (l *Limit) Stream(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, err := l.admit(stream.Context())
	if err != nil {
		return err
	}
	return handler(server, admitted{stream, ctx})
}

// admitted is a stream with another context.
type admitted struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s admitted) Context() context.Context { return s.ctx }

// admit returns the context of a request that may go on, or the status of one that may
// not.
func (l *Limit) admit(ctx context.Context) (context.Context, error) {
	req, answer, err := l.admission.Admit(ctx, ctx)
	var denied *client.DeniedError
	switch {
	case err == nil:
		_ = grpc.SetHeader(ctx, l.fields(answer)) // if there is no call there is no header
		return middleware.WithAnswer(ctx, answer), nil
	case errors.As(err, &denied):
		st := l.admission.Style.Status(middleware.Told(denied), req.GetIdentifierType()+":"+req.GetIdentifier())
		return nil, turnAway(ctx, st)
	case status.Code(err) == codes.InvalidArgument:
		return nil, err
	case middleware.IsRefused(err):
		return nil, status.Error(codes.Internal, middleware.Refused)
	case status.Code(err) == codes.ResourceExhausted:
		return nil, turnAway(ctx, overloaded(status.Convert(err).Message()))
	}
	return nil, status.FromContextError(err).Err()
}

// fields returns what clients are told of an answer as metadata.
func (l *Limit) fields(answer *weirv1.RateLimitResponse) metadata.MD {
	fields := make(http.Header)
	_ = l.admission.Style.Set(fields, headers.Of(answer)) // names of rules are ASCII
	md := make(metadata.MD, len(fields))
	for name, values := range fields {
		md[strings.ToLower(name)] = values
	}
	return md
}

// overloaded is the status of a request for which there was no time. It is none of the
// client's quota, so it is not RESOURCE_EXHAUSTED.
func overloaded(text string) *status.Status {
	st := status.New(codes.Unavailable, text)
	if detailed, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(overloadPause)}); err == nil {
		return detailed
	}
	return st
}

// turnAway returns st as an error, and says in the trailer when to come back, if that is
// known. Header metadata would keep gRPC from retrying.
func turnAway(ctx context.Context, st *status.Status) error {
	wait, ok := client.RetryAfter(st.Err())
	ms := int64(-1)
	switch {
	case ok && wait == 0:
		return st.Err()
	case ok:
		ms = int64((wait-1)/time.Millisecond) + 1
	}
	_ = grpc.SetTrailer(ctx, metadata.Pairs(pushback, strconv.FormatInt(ms, 10))) // if there is no call there is no trailer
	return st.Err()
}
