package headers

import (
	"strconv"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// What the ErrorInfo of a Status says.
const (
	// Reason is why: a limit has no room, or no node could decide.
	Reason          = "RATE_LIMIT_EXCEEDED"
	ReasonUndecided = "RATE_LIMIT_UNDECIDED"
	// Domain is whose reason that is.
	Domain = "weir.v1"
)

// Status returns the status of an answer that denies: RESOURCE_EXHAUSTED, with an
// ErrorInfo; with a QuotaFailure that names the violated policies, of the subject, such
// as "user:alice", if it is not empty; and, if a wait helps, with a RetryInfo, which has
// the jitter.
func (s Style) Status(a Answer, subject string) *status.Status {
	text, info := undecided, &errdetails.ErrorInfo{Reason: ReasonUndecided, Domain: Domain}
	details := []protoadapt.MessageV1{info}
	if len(a.Violated) > 0 {
		text, info.Reason = describe(a.Violated[0], a.RetryAfter), Reason
		info.Metadata = map[string]string{"policy": a.Policy.Name, "limit": strconv.FormatInt(a.Policy.Limit, 10)}
		details = append(details, quotaFailure(a, strings.ToValidUTF8(subject, "\uFFFD")))
	}
	if a.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(s.jitter(a.RetryAfter))})
	}
	plain := status.New(codes.ResourceExhausted, text)
	st, err := plain.WithDetails(details...)
	if err != nil {
		return plain // a policy's name is not UTF-8
	}
	return st
}

func quotaFailure(a Answer, subject string) *errdetails.QuotaFailure {
	failure := &errdetails.QuotaFailure{}
	for _, p := range a.Violated[:min(len(a.Violated), maxPolicies)] {
		failure.Violations = append(failure.Violations, &errdetails.QuotaFailure_Violation{
			Subject: subject, Description: describe(p, a.RetryAfter), QuotaId: p.Name, QuotaValue: p.Limit,
		})
	}
	return failure
}
