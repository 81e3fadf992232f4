package access

import (
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// StatusOf returns the gRPC status of an *Denial, and other errors as they are.
func StatusOf(err error) error {
	d, ok := errors.AsType[*Denial](err)
	switch {
	case !ok:
		return err
	case d.Known:
		return status.Error(codes.PermissionDenied, d.Reason)
	}
	return status.Error(codes.Unauthenticated, d.Reason)
}
