// Package middleware checks the requests of a server, for the middlewares of HTTP and gRPC: it names the caller,
// applies the failure policy, and waits for a request's turn.
package middleware

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Admission decides requests of a server, which are of the type R. Make it with New.
type Admission[R any] struct {
	Config[R]
	checker client.Checker
}

// Config says how requests are decided.
type Config[R any] struct {
	// Callers say who makes a request: all that are not empty are attributes, and the
	// first is the identifier. Of several with one name the first counts.
	Callers []Attribute[R]
	// Further are attributes of what is asked for.
	Further []Attribute[R]
	// Endpoint is what is asked for. If New is given none, neither here nor by an option, the
	// caller sets it before Admit.
	Endpoint func(R) string
	// Route is how a router names what is asked for, "" where it does not know. The caller that sets
	// Endpoint uses it; it is nil together with an Endpoint.
	Route func(R) string
	// Cost is in tokens. Nil means 1, and so does a lower cost: requests give no tokens back.
	Cost func(R) int64
	// Domain is that of the rules. Empty means "default".
	Domain string
	// Timeout is how long a decision may take. 0 means client.DefaultTimeout.
	Timeout time.Duration
	// FailClosed denies requests not decided in time.
	FailClosed bool
	// OnAnswer is called with every answer, unless it is nil.
	OnAnswer func(R, *weirv1.RateLimitResponse)
	// OnError is called with every error of a check, unless it is nil or the client has gone.
	OnError func(R, error)
	// Style is the form of the answers to clients.
	Style headers.Style
}

// Attribute is a property of requests: "" for those that do not have it.
type Attribute[R any] struct {
	Name string
	Of   func(R) string
}

// New returns an Admission that asks c. The options change the config.
func New[R any](c client.Checker, config Config[R], opts []Option[R]) (*Admission[R], error) {
	if c == nil {
		return nil, errors.New("limiter: it is nil")
	}
	config.Style = headers.DefaultStyle()
	for _, opt := range opts {
		if err := opt(&config); err != nil {
			return nil, err
		}
	}
	if config.Endpoint != nil && config.Route != nil {
		return nil, errors.New("route: not together with endpoint, which replaces it")
	}
	timeout := cmp.Or(config.Timeout, client.DefaultTimeout)
	if config.FailClosed {
		return &Admission[R]{config, client.FailClosed(c, timeout)}, nil
	}
	return &Admission[R]{config, client.FailOpen(c, timeout)}, nil
}

// Admit decides a request, and waits for its turn if a rule has booked one. The error is
// a *client.DeniedError, the end of ctx, or that of client.Checker for what is invalid, too
// much, or refused. The answer is nil if there is none.
func (a *Admission[R]) Admit(ctx context.Context, r R) (*weirv1.RateLimitRequest, *weirv1.RateLimitResponse, error) {
	req := a.request(r)
	answer, err := a.checker.Check(ctx, req)
	if err != nil {
		if a.OnError != nil && ctx.Err() == nil {
			a.OnError(r, err)
		}
		return req, nil, err
	}
	if a.OnAnswer != nil {
		a.OnAnswer(r, answer)
	}
	if err := client.Denied(answer); err != nil {
		return req, answer, err
	}
	return req, answer, client.AwaitTurn(ctx, a.checker, req, answer)
}

// request returns what to ask about r.
func (a *Admission[R]) request(r R) *weirv1.RateLimitRequest {
	req := &weirv1.RateLimitRequest{Domain: a.Domain, Endpoint: valid(a.Endpoint(r))}
	if a.Cost != nil {
		req.TokensRequested = max(1, a.Cost(r))
	}
	for _, c := range a.Callers {
		value := valid(c.Of(r))
		if req.GetIdentifier() == "" {
			req.IdentifierType, req.Identifier = c.Name, value
		} else {
			add(req, c.Name, value)
		}
	}
	for _, c := range a.Further {
		add(req, c.Name, valid(c.Of(r)))
	}
	return req
}

// add adds an attribute, unless it is empty or there already.
func add(req *weirv1.RateLimitRequest, name, value string) {
	if value == "" || name == req.GetIdentifierType() {
		return
	}
	if _, found := req.GetAttributes()[name]; found {
		return
	}
	if req.Attributes == nil {
		req.Attributes = make(map[string]string)
	}
	req.Attributes[name] = value
}

// valid returns a text that can be sent: clients may write what they like.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// Refused is what clients are told where nodes refuse this server. The reason is not for them.
const Refused = "the rate limiter refuses this server: its configuration needs to be corrected"

// IsRefused reports whether nodes refuse this server, by the error of Admit.
func IsRefused(err error) bool {
	var access *client.AccessError
	code := status.Code(err)
	return errors.As(err, &access) || code == codes.Unauthenticated || code == codes.PermissionDenied
}

// Told returns what the client is told of a denial.
func Told(e *client.DeniedError) headers.Answer {
	a := headers.Of(e.Answer)
	if !a.Denied { // it has room, but its turn comes too late
		a.Denied, a.Violated = true, []headers.Policy{a.Policy}
		a.RetryAfter, _ = e.RetryAfter()
	}
	return a
}

type answerKey struct{}

// WithAnswer returns a context from which AnswerOf returns the answer.
func WithAnswer(ctx context.Context, answer *weirv1.RateLimitResponse) context.Context {
	return context.WithValue(ctx, answerKey{}, answer)
}

// AnswerOf returns the answer that allowed a request, nil without a check.
func AnswerOf(ctx context.Context) *weirv1.RateLimitResponse {
	answer, _ := ctx.Value(answerKey{}).(*weirv1.RateLimitResponse)
	return answer
}
