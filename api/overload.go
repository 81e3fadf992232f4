package api

import (
	"context"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/api/internal/wire"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Overload says which calls the node has time for. *overload.Control is one.
type Overload interface {
	// Accept reports whether there is time for one more call.
	Accept() bool
	// Began is called for each call that has come, Ended when it was answered, with the context that Began has returned. What conn returns of
	// a context is the same for calls on one connection only.
	Began(ctx context.Context, conn func(context.Context) any) context.Context
	Ended(ctx context.Context)
	// Add counts the checks of an accepted call beyond its first.
	Add(ctx context.Context, checks int)
}

// acceptAll is the Overload of a Limiter that has none.
type acceptAll struct{}

func (acceptAll) Accept() bool                                                           { return true }
func (acceptAll) Began(ctx context.Context, _ func(context.Context) any) context.Context { return ctx }
func (acceptAll) Ended(context.Context)                                                  {}
func (acceptAll) Add(context.Context, int)                                               {}

// connOf tells the connection of a call from others.
func connOf(ctx context.Context) any {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr // which each connection of gRPC has for itself
	}
	c, _ := ctx.Value(connCallerKey{}).(*connCaller)
	return c
}

// errRefused answers a call that is refused unread.
var errRefused = status.Error(codes.ResourceExhausted, "overloaded: this node is asked for more checks than it can answer; nothing of the call was counted")

// accept returns errRefused if there is no time for a call, which is counted as one check.
func (l *Limiter) accept() error {
	if l.overload.Accept() {
		return nil
	}
	l.checks.CountOverloaded(1)
	return errRefused
}

// Tap refuses calls before they are read. It is for grpc.InTapHandle. Calls of Envoy are not refused so: Envoy would
// allow the request on an error.
func (l *Limiter) Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	switch call.FullMethodName {
	case weirv1.RateLimiter_CheckRateLimit_FullMethodName, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName:
		if err := l.accept(); err != nil {
			return ctx, err
		}
		return l.overload.Began(ctx, connOf), nil
	case rlsv3.RateLimitService_ShouldRateLimit_FullMethodName:
		return l.overload.Began(ctx, connOf), nil
	}
	return ctx, nil
}

// accepting has next answer the requests over HTTP that there is time for, and refuse the others.
func (l *Limiter) accepting(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	next = l.watched(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := l.accept(); err != nil {
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// watched has the requests over HTTP that next answers begin and end as calls.
func (l *Limiter) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn := connOf
		if r.ProtoMajor > 1 { // each of its requests is read when those before have been answered, so they do not seem to wait at once
			conn = func(context.Context) any { return r }
		}
		if ctx := l.overload.Began(r.Context(), conn); ctx != r.Context() {
			defer l.overload.Ended(ctx)
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// overloadOfEnvoy is the envoy.Overload of a Limiter.
type overloadOfEnvoy struct{ l *Limiter }

func (o overloadOfEnvoy) Accept() bool                           { return o.l.overload.Accept() }
func (o overloadOfEnvoy) Ended(ctx context.Context)              { o.l.overload.Ended(ctx) }
func (o overloadOfEnvoy) Watched(next http.Handler) http.Handler { return o.l.watched(next) }

// untilAnswered has the calls of Tap end with their answers.
func (l *Limiter) untilAnswered(answer wire.Answerer) wire.Answerer {
	return func(ctx context.Context, request []byte) (wire.Encoded, error) {
		defer l.overload.Ended(ctx)
		return answer(ctx, request)
	}
}

// refuseProblem answers with the problem that err, which is errRefused, is.
func refuseProblem(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set("Retry-After", retryOverloaded)
	problemOf(err).Write(w)
}
