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

// Denial says why a call is refused. Its text is for the caller, and has no secrets.
type Denial struct {
	Known  bool // the caller has proven its name, and has not the role
	Reason string
}

// Error returns the reason.
func (d *Denial) Error() string { return d.Reason }

// Revoked is the Denial of a caller whose token was revoked during a call.
var Revoked = &Denial{Reason: "the token was revoked"}
