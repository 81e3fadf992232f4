package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Failed checks are answered in time, and marked; those that must be denied are.
func TestFailOpenAndClosed(t *testing.T) {
	const timeout = 30 * time.Millisecond
	answers := func(r *weirv1.RateLimitResponse, err error) deciding {
		return func(context.Context, *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) { return r, err }
	}
	silent := deciding(func(ctx context.Context, _ *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	invalid, overloaded := status.Error(codes.InvalidArgument, "no"), status.Error(codes.ResourceExhausted, "too much")
	access := &client.AccessError{Address: "a:1", Reason: errors.New("tls: bad certificate")}
	decided := &weirv1.RateLimitResponse{Source: weirv1.Source_SOURCE_OWNER, RuleId: "r"}
	undecided := &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_FAIL_OPEN}
	byRule := &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_FAIL_OPEN, RuleId: "r"}
	open, closed := weirv1.Source_SOURCE_FAIL_OPEN, weirv1.Source_SOURCE_FAIL_CLOSED
	for _, tc := range []struct {
		name                 string
		c                    client.Checker
		whenOpen, whenClosed weirv1.Source
		err                  error
		took                 time.Duration
	}{
		{"decided", answers(decided, nil), weirv1.Source_SOURCE_OWNER, weirv1.Source_SOURCE_OWNER, nil, 0},
		{"silent", silent, open, closed, nil, timeout},
		{"unavailable", answers(nil, status.Error(codes.Unavailable, "down")), open, closed, nil, 0},
		{"closed", answers(nil, client.ErrClosed), open, closed, nil, 0},
		{"allowed by a client", answers(undecided, nil), open, closed, nil, 0},
		{"allowed by a rule", answers(byRule, nil), open, open, nil, 0},
		{"invalid", answers(nil, invalid), 0, 0, invalid, 0},
		{"overloaded", answers(nil, overloaded), 0, 0, overloaded, 0},
		{"refused by all nodes", answers(nil, access), 0, 0, access, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, kind := range []struct {
					c    client.Checker
					want weirv1.Source
				}{{client.FailOpen(tc.c, timeout), tc.whenOpen}, {client.FailClosed(tc.c, timeout), tc.whenClosed}} {
					begin := time.Now()
					r, err := kind.c.Check(t.Context(), request("alice"))
					if took := time.Since(begin); took != tc.took || !errors.Is(err, tc.err) || r.GetSource() != kind.want {
						t.Errorf("%v, %v after %v, want %v, %v after %v", r, err, took, kind.want, tc.err, tc.took)
					}
					if kind.want == open && !r.GetAllowed() || kind.want == closed && r.GetAllowed() {
						t.Errorf("%v: allowed is %v", kind.want, r.GetAllowed())
					}
				}
			})
		})
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := client.FailOpen(silent, timeout).Check(canceled, request("alice")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v, want that the caller has gone", r, err)
	}
}
