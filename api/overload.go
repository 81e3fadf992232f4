package api

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Overload says which calls the node has time for. *overload.Control is one.
type Overload interface {
	// Accept reports whether there is time for one more call.
	Accept() bool
	// Add counts the checks of an accepted call beyond its first.
	Add(checks int)
}

// acceptAll is the Overload of a Limiter that has none.
type acceptAll struct{}

func (acceptAll) Accept() bool { return true }
func (acceptAll) Add(int)      {}

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
		return ctx, l.accept()
	}
	return ctx, nil
}

// accepting has next answer the requests over HTTP that there is time for, and refuse the others.
func (l *Limiter) accepting(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := l.accept(); err != nil {
			refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseProblem answers with the problem that err, which is errRefused, is.
func refuseProblem(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set("Retry-After", retryOverloaded)
	problemOf(err).Write(w)
}
