// Package httplimit limits an HTTP server, as a middleware of net/http:
//
//	weir, err := client.New("10.0.0.1:9090") // or embedded.New(rules), without a node
//	limit, err := httplimit.New(weir, httplimit.User(userOf))
//	err = http.ListenAndServe(":8000", limit(mux))
//
// # What rules see
//
// The callers that options name, such as "user" and "api_key"; "ip", the client's address; "endpoint" and
// "method". The first caller that a request has is its identifier; rules see no difference. A request that
// nodes would refuse, such as one with a key of more than 256 bytes, is answered with 400, as it must not
// be a way around the limits.
//
// The endpoint is the route, such as "/posts/{id}", if the middleware stands right before an
// [http.ServeMux] or behind one, or if the option Route asks another router. Where the route is not
// known, or ends in a slash or in "...}" and so stands for all paths below, it is the path in
// the form of [Path], which shortens long ones. Endpoint replaces both.
//
// # What clients see
//
// The header fields of a [Style], which WithStyle chooses. A denied request is
// answered with 429, one for which Weir has no time with 503, both with
// application/problem+json. If a rule books a turn for a request (max_delay, leaky_bucket),
// it waits here for as long as its context lets it.
//
// # When no node answers
//
// A decision takes 100 ms at most, or what WithTimeout says. After that the request is allowed, and its
// answer marked as SOURCE_FAIL_OPEN: see Answer and OnAnswer. With WithFailClosed it is denied instead.
//
// If all nodes refuse the certificate or the token of this server, requests are answered with 500 in either case.
// OnError has the reason.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/internal/middleware"
	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// New returns a middleware that asks limiter about every request. It fails only for
// options that make no sense.
func New(limiter client.Checker, opts ...Option) (func(http.Handler) http.Handler, error) {
	opts = append(slices.Clip(opts), IP()) // behind those of the caller, who may have said it already
	a, err := middleware.New(limiter, middleware.Config[*http.Request]{
		Further: []middleware.Attribute[*http.Request]{{Name: "method", Of: func(r *http.Request) string { return r.Method }}},
	}, opts)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		a := *a // which asks next for routes
		if a.Endpoint == nil {
			a.Endpoint = func(r *http.Request) string { return endpoint(a.Route, next, r) }
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(&a, next, w, r) })
	}, nil
}

// Answer returns the answer that allowed a request, from the request's context. It is nil without a check.
func Answer(ctx context.Context) *weirv1.RateLimitResponse { return middleware.AnswerOf(ctx) }

func serve(a *middleware.Admission[*http.Request], next http.Handler, w http.ResponseWriter, r *http.Request) {
	_, answer, err := a.Admit(r.Context(), r)
	var denied *client.DeniedError
	switch {
	case err == nil:
		_ = a.Style.Set(w.Header(), headers.Of(answer)) // names of rules are ASCII
		next.ServeHTTP(w, r.WithContext(middleware.WithAnswer(r.Context(), answer)))
	case errors.As(err, &denied):
		told := middleware.Told(denied)
		_ = a.Style.Set(w.Header(), told)
		headers.ProblemOf(told).Write(w)
	case status.Code(err) == codes.InvalidArgument:
		const code = http.StatusBadRequest
		headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: status.Convert(err).Message()}.Write(w)
	case middleware.IsRefused(err):
		const code = http.StatusInternalServerError
		headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: middleware.Refused}.Write(w)
	default: // too much to do, or the client has gone
		w.Header().Set("Retry-After", "1")
		headers.Overloaded(status.Convert(err).Message()).Write(w)
	}
}
