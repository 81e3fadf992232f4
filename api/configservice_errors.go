package api

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/rules"
)

// changeCodes are the codes of what a change of rules is refused for.
var changeCodes = []struct {
	err  error
	code codes.Code
}{
	{rules.ErrNotFound, codes.NotFound},
	{rules.ErrExists, codes.AlreadyExists},
	{rules.ErrChanged, codes.Aborted},
	{rules.ErrReadOnly, codes.FailedPrecondition},
	{rules.ErrWhole, codes.FailedPrecondition},
	{rules.ErrTooLarge, codes.InvalidArgument},
	{context.Canceled, codes.Canceled},
}

// changeError returns the status of an error of a RuleStore or of a file that was
// parsed, nil for none.
func changeError(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*rules.LoadError](err); ok {
		return refusedRules(refused)
	}
	for _, c := range changeCodes {
		if errors.Is(err, c.err) {
			return status.Error(c.code, err.Error())
		}
	}
	return status.Errorf(codes.Unavailable, "%v; the change may have been made or not", err)
}

// refusedRules lists as many problems as fit, as text and as a BadRequest. All
// travel in HTTP headers, of which many a client takes no more than 16 KiB.
func refusedRules(refused *rules.LoadError) error {
	var lines []string
	details := &errdetails.BadRequest{}
	bytes := 0
	for _, p := range refused.Problems {
		line := p.String()
		if bytes += len(line); bytes > maxProblemBytes {
			break
		}
		lines = append(lines, line)
		details.FieldViolations = append(details.FieldViolations, &errdetails.BadRequest_FieldViolation{
			Field: problemField(p), Description: line,
		})
	}
	if more := len(refused.Problems) - len(lines) + refused.More; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	st := status.New(codes.InvalidArgument, strings.Join(lines, "\n"))
	if detailed, err := st.WithDetails(details); err == nil {
		st = detailed
	}
	return st.Err()
}

// problemField is the way to the value: posts.limits[0].window.
func problemField(p rules.Problem) string {
	return strings.Trim(p.Rule+"."+p.Field, ".")
}
