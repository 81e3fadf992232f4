// Package httplimit limits an HTTP server, as a middleware of net/http:
//
//	weir, err := client.New("10.0.0.1:9090") // or embedded.New(rules), without a node
//	limit, err := httplimit.New(weir, httplimit.User(userOf))
//	err = http.ListenAndServe(":8000", limit(mux))
//
// # What rules see
//
// The callers that options name, such as "user" and "api_key"; "ip", the client's address;
// "endpoint", the path without repeated slashes and dots; and "method". The first caller
// that a request has is its identifier; rules see no difference. What nodes would
// refuse, as a key of more than 256 bytes, is answered with 400, as it must not be a way
// around the limits. So is a path of more than 256 bytes: where there are such ones, say
// what is asked for by Endpoint.
//
// # What clients see
//
// The header fields of package headers, in the style of WithStyle. A denied request is
// answered with 429, one for which Weir has no time with 503, both with
// application/problem+json. If a rule books a turn for a request (max_delay, leaky_bucket),
// it waits here for as long as its context lets it.
//
// # When nobody answers
//
// A decision takes 100 ms at most, or what WithTimeout says. After that the request is let
// through, and its answer marked as SOURCE_FAIL_OPEN: see Answer and OnAnswer. With
// WithFailClosed it is denied instead.
package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/client/internal/gate"
	"github.com/weirlimit/weir/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// New returns a middleware that asks limiter about every request. It fails only for
// options that make no sense.
func New(limiter client.Checker, opts ...Option) (func(http.Handler) http.Handler, error) {
	opts = append(slices.Clip(opts), IP()) // behind those of the caller, who may have said it already
	g, err := gate.New(limiter, gate.Config[*http.Request]{
		Further:  []gate.Attribute[*http.Request]{{Name: "method", Of: func(r *http.Request) string { return r.Method }}},
		Endpoint: cleanPath,
	}, opts)
	if err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(g, next, w, r) })
	}, nil
}

// Answer returns the answer that let a request through, from the request's context. It is
// nil if nobody was asked.
func Answer(ctx context.Context) *weirv1.RateLimitResponse { return gate.AnswerOf(ctx) }

func serve(g *gate.Gate[*http.Request], next http.Handler, w http.ResponseWriter, r *http.Request) {
	_, answer, err := g.Admit(r.Context(), r)
	var denied *client.DeniedError
	switch {
	case err == nil:
		_ = g.Style.Set(w.Header(), headers.Of(answer)) // names of rules are ASCII
		next.ServeHTTP(w, r.WithContext(gate.WithAnswer(r.Context(), answer)))
	case errors.As(err, &denied):
		told := gate.Told(denied)
		_ = g.Style.Set(w.Header(), told)
		headers.ProblemOf(told).Write(w)
	case status.Code(err) == codes.InvalidArgument:
		const code = http.StatusBadRequest
		headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code, Detail: status.Convert(err).Message()}.Write(w)
	default: // too much to do, or the client has gone
		w.Header().Set("Retry-After", "1")
		headers.Overloaded(status.Convert(err).Message()).Write(w)
	}
}

// cleanPath returns the path in one spelling of those that routers take for the same.
func cleanPath(r *http.Request) string {
	clean := path.Clean("/" + r.URL.Path)
	if strings.HasSuffix(r.URL.Path, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}
