package client

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Checker decides checks. A Client and a Node ask nodes; an embedded.Limiter counts by
// itself. Its methods are safe for concurrent use, and its errors those of a Client.
type Checker interface {
	Check(ctx context.Context, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error)
}

// refused reports whether a request was invalid.
func refused(err error) bool { return status.Code(err) == codes.InvalidArgument }

// overloaded reports whether there was too much to do to decide a request.
func overloaded(err error) bool { return status.Code(err) == codes.ResourceExhausted }
