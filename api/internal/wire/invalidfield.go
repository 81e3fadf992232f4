package wire

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Invalid is an INVALID_ARGUMENT error about the field. Its format names the value
// or its length, and the bound.
func Invalid(field, format string, args ...any) error {
	return status.Error(codes.InvalidArgument, field+": "+fmt.Sprintf(format, args...))
}

// Under is err with what it is about before it: for an error made by Invalid, what its field belongs to.
func Under(name string, err error) error {
	st := status.Convert(err)
	if st.Code() != codes.InvalidArgument {
		return status.Error(st.Code(), name+": "+st.Message())
	}
	return status.Error(codes.InvalidArgument, name+"."+st.Message())
}
