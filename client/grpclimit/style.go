package grpclimit

import (
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Style says which fields the header metadata has, and by how much RetryInfo varies. The
// zero value writes Retry-After and nothing else.
type Style = headers.Style

// Form is a set of fields in which clients look for limits.
type Form = headers.Form

// The forms; package httplimit has the same. Of the first three, which share names, a
// Style has at most one.
const (
	Draft      = headers.Draft      // RateLimit-Policy and RateLimit, as structured fields
	Draft7     = headers.Draft7     // RateLimit: limit=100, remaining=50, reset=30
	Draft6     = headers.Draft6     // RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset
	XRateLimit = headers.XRateLimit // X-RateLimit-Limit, -Remaining and -Reset
)

// DefaultStyle returns the style of a Limit without WithStyle: Draft and XRateLimit, with a
// jitter of 10 %.
func DefaultStyle() Style { return headers.DefaultStyle() }

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
