package client

import (
	"context"
	"errors"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// FailOpen returns a Checker that answers within the timeout, and earlier if the context ends: if c does
// not, or fails, the check is allowed and marked, as by a Client. Invalid requests, overload, and that all nodes refuse this
// client remain errors.
func FailOpen(c Checker, timeout time.Duration) Checker { return guard{c, timeout, false} }

// FailClosed is FailOpen that denies. It also denies checks that c allowed because no node answered. What a node allowed by
// the on_failure of a rule stays allowed.
func FailClosed(c Checker, timeout time.Duration) Checker { return guard{c, timeout, true} }

type guard struct {
	checker    Checker
	timeout    time.Duration
	failClosed bool
}

// Check implements Checker.
func (g guard) Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	bounded, cancel := context.WithTimeout(ctx, g.timeout)
	defer cancel()
	answer, err := g.checker.Check(bounded, req)
	switch {
	case err == nil && !(g.failClosed && isClients(answer)):
		return answer, nil
	case err == nil:
	case errors.Is(ctx.Err(), context.Canceled):
		return nil, context.Canceled
	case refused(err) || overloaded(err) || isAccess(err):
		return nil, err
	}
	return clientAnswer(g.failClosed), nil
}

// clientAnswer returns the answer of a client without one.
func clientAnswer(failClosed bool) *weirv1.RateLimitResponse {
	if failClosed {
		return &weirv1.RateLimitResponse{
			Source:       weirv1.Source_SOURCE_FAIL_CLOSED,
			DenialReason: weirv1.DenialReason_DENIAL_REASON_UNDECIDED.Enum(),
		}
	}
	return &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_FAIL_OPEN}
}

// Undecided reports whether no node that counts answered in time. The answer is then the failure policy of
// the rule, by a node, or that of the client. The answer of a client names no rule, as the client knows none.
func Undecided(r *weirv1.RateLimitResponse) bool {
	switch r.GetSource() {
	case weirv1.Source_SOURCE_FAIL_OPEN, weirv1.Source_SOURCE_FAIL_CLOSED:
		return true
	default:
		return false
	}
}

// isClients reports whether a client has made the answer by itself, because no node answered in time.
func isClients(r *weirv1.RateLimitResponse) bool { return Undecided(r) && r.GetRuleId() == "" }
