package api

import (
	"context"
	"errors"
	"net/http"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/overload"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Overload says which calls the node has time for. *overload.Control is one.
type Overload interface {
	// Accept reports whether there is time for one more call, before it is read. Began is called in its place for calls that are read in any
	// case.
	Accept(ctx context.Context, from overload.Origin) (context.Context, bool)
	Began(ctx context.Context, from overload.Origin) context.Context
	// Admit reports whether there is time for a call of these, once its domain and the number of its checks are known. Ended is called when
	// the call was answered. TurnAway is called for an admitted call of so many checks that is refused, because other nodes have no time for
	// it. All get the context that Accept or Began has returned.
	Admit(ctx context.Context, rules overload.Rules, domain string, checks int) bool
	TurnAway(ctx context.Context, checks int)
	Ended(ctx context.Context)
}

// acceptAll is the Overload of a Limiter that has none.
type acceptAll struct{}

func (acceptAll) Accept(ctx context.Context, _ overload.Origin) (context.Context, bool) {
	return ctx, true
}
func (acceptAll) Began(ctx context.Context, _ overload.Origin) context.Context { return ctx }
func (acceptAll) Admit(context.Context, overload.Rules, string, int) bool      { return true }
func (acceptAll) TurnAway(context.Context, int)                                {}
func (acceptAll) Ended(context.Context)                                        {}

// ofConn is the overload.Origin of calls over gRPC.
func ofConn(ctx context.Context) (*overload.Conn, any) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, nil
	}
	if info, metered := p.AuthInfo.(meteredInfo); metered {
		return &info.conn.domains, info.conn
	}
	return nil, p.Addr // which each connection has for itself
}

// Calls that are refused before anything of them was counted.
var (
	errRefused   = status.Error(codes.ResourceExhausted, "overloaded: this node is asked for more checks than it can answer; nothing of the call was counted")
	errOpenCalls = status.Errorf(codes.ResourceExhausted, "calls are begun and not ended: this node has %d of them already, and this connection its share", maxOpenCalls)
	errManyCalls = status.Errorf(codes.ResourceExhausted, "calls are under way: this node has %d of them already, and this connection its share", maxCalls)
	errCrowded   = status.Error(codes.ResourceExhausted, "overloaded: too many checks wait already for the node that counts; nothing of the call was counted")
)

// refuse counts a call that there is no time for as one check.
func (l *Limiter) refuse() error {
	l.checks.CountOverloaded(1)
	return errRefused
}

// admitBatch refuses a batch if owners have no time for it. Its first checks were added to w. One overloaded check would have the whole batch refused
// in the end, and the caller would lose what other nodes had counted of it.
func (l *Limiter) admitBatch(ctx context.Context, w *work, checks int) error {
	if l.checks.Decider.HasTime(w.Takes, checks/sample) {
		return nil
	}
	l.overload.TurnAway(ctx, checks)
	l.checks.CountOverloaded(checks)
	return errCrowded
}

// admit returns errRefused if there is no time for what an accepted call asks for.
func (l *Limiter) admit(ctx context.Context, w *work, checks int) error {
	if l.overload.Admit(ctx, w.Set, w.Request.Domain, checks) {
		return nil
	}
	return l.refuse()
}

// failed counts the error of a call, and returns it. The call was counted before if it was refused.
func (l *Limiter) failed(name string, err error) error {
	if errors.Is(err, errRefused) || errors.Is(err, errCrowded) {
		return err
	}
	return l.checks.Failed(name, err)
}

// Tap refuses calls before they are read. It is for grpc.InTapHandle. Calls of Envoy are refused only if too many are open: Envoy would
// allow the request on an error.
func (l *Limiter) Tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	if l.unfinished.hasManyCalls() {
		if conn := meteredConnOf(ctx); conn != nil {
			if err := conn.unfinished.refusal(); err != nil {
				conn.unfinished.charged.Add(2) // the refusal counts as an answer
				return ctx, err
			}
		}
	}
	switch call.FullMethodName {
	case weirv1.RateLimiter_CheckRateLimit_FullMethodName, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName:
		ctx, accepted := l.overload.Accept(ctx, ofConn)
		if !accepted {
			return ctx, l.refuse()
		}
		return ctx, nil
	case rlsv3.RateLimitService_ShouldRateLimit_FullMethodName:
		return l.overload.Began(ctx, ofConn), nil
	}
	return ctx, nil
}

// ofRequest returns the overload.Origin of a request over HTTP.
func ofRequest(r *http.Request) overload.Origin {
	return func(ctx context.Context) (domains *overload.Conn, id any) {
		c, ok := ctx.Value(connCallerKey{}).(*connCaller)
		if ok {
			domains = &c.domains
		}
		if r.ProtoMajor > 1 { // each of its requests is read when those before have been answered, so they do not seem to wait at once
			return domains, r
		}
		return domains, c
	}
}

// accepting has next answer the requests over HTTP that there is time for, and refuse the others.
func (l *Limiter) accepting(next http.Handler, refuse func(http.ResponseWriter, *http.Request, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, accepted := l.overload.Accept(r.Context(), ofRequest(r))
		if !accepted {
			refuse(w, r, l.refuse())
			return
		}
		l.serveUntilAnswered(ctx, next, w, r)
	})
}

// watched has the requests over HTTP that next answers begin and end as calls.
func (l *Limiter) watched(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.serveUntilAnswered(l.overload.Began(r.Context(), ofRequest(r)), next, w, r)
	})
}

// serveUntilAnswered has next answer a request that has begun with that context.
func (l *Limiter) serveUntilAnswered(ctx context.Context, next http.Handler, w http.ResponseWriter, r *http.Request) {
	defer l.overload.Ended(ctx)
	if ctx != r.Context() {
		r = r.WithContext(ctx)
	}
	next.ServeHTTP(w, r)
}

// overloadOfEnvoy is the envoy.Overload of a Limiter.
type overloadOfEnvoy struct{ l *Limiter }

func (o overloadOfEnvoy) Admit(ctx context.Context, set *rules.Set, domain string, descriptors int) bool {
	return o.l.overload.Admit(ctx, set, domain, descriptors)
}
func (o overloadOfEnvoy) Ended(ctx context.Context)              { o.l.overload.Ended(ctx) }
func (o overloadOfEnvoy) Watched(next http.Handler) http.Handler { return o.l.watched(next) }

// untilAnswered has the calls of Tap end with their answers.
func (l *Limiter) untilAnswered(answer wire.Answerer) wire.Answerer {
	return func(ctx context.Context, request wire.Part) (wire.Encoded, error) {
		defer l.overload.Ended(ctx)
		return answer(ctx, request)
	}
}

// refuseProblem answers with the problem that err, which is errRefused, is.
func refuseProblem(w http.ResponseWriter, _ *http.Request, err error) {
	w.Header().Set("Retry-After", retryOverloaded)
	problemOf(err).Write(w)
}
