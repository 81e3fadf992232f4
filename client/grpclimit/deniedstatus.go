package grpclimit

import (
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// DeniedStatus returns the status RESOURCE_EXHAUSTED for a denied answer, in a service
// that uses no interceptor. Its details are an ErrorInfo, a QuotaFailure with the violated
// policies of the subject, such as "user:alice", and a RetryInfo if a wait helps. The status
// is OK if the answer allows.
func DeniedStatus(style Style, answer *weirv1.RateLimitResponse, subject string) *status.Status {
	a := headers.Of(answer)
	if !a.Denied {
		return nil
	}
	return style.Status(a, subject)
}
