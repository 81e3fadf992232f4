package ui

import (
	"errors"
	"fmt"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// longFormError is the error of a form that has more bytes than the server takes.
type longFormError struct{ most int64 }

// Error implements error.
func (e *longFormError) Error() string {
	return fmt.Sprintf("the form has more than %s; change longer rules with weir rules apply", formatBytes(uint64(e.most)))
}

// GRPCStatus returns the status that package status finds.
func (e *longFormError) GRPCStatus() *status.Status {
	return status.New(codes.InvalidArgument, e.Error())
}

// parseForm reads the form of a request. Its error has a status code.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &longFormError{large.Limit}
	}
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "the form cannot be read: %v", err)
	}
	return nil
}
