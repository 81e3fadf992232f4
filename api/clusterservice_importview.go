package api

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// ErrNothingLost says that the registry has all that it had.
var ErrNothingLost = errors.New("etcd has what it had, there is nothing to import")

// importView is ImportView without the audit log.
func (s clusterServer) importView(ctx context.Context, req *weirv1.ImportViewRequest) (*weirv1.ImportViewResponse, error) {
	resp, err := s.status.ImportView(ctx, req.GetDryRun())
	switch {
	case errors.Is(err, ErrNothingLost):
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	case err != nil:
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return resp, nil
}
