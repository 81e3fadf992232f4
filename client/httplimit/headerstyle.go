package httplimit

import (
	"github.com/weirlimit/weir/internal/headers"
)

// Style says which header fields are written, and by how much Retry-After varies. The
// zero value writes Retry-After and nothing else.
type Style = headers.Style

// Form is a set of header fields in which clients look for limits.
type Form = headers.Form

// The forms. Of the first three, which share names, a Style has at most one.
const (
	// Draft is RateLimit-Policy and RateLimit, as structured fields:
	// draft-ietf-httpapi-ratelimit-headers, from its version 8 to version 11.
	Draft = headers.Draft
	// Draft7 is the form of version 7: RateLimit: limit=100, remaining=50, reset=30.
	Draft7 = headers.Draft7
	// Draft6 is the form of version 6 and earlier: RateLimit-Limit, RateLimit-Remaining,
	// RateLimit-Reset.
	Draft6 = headers.Draft6
	// XRateLimit is X-RateLimit-Limit, -Remaining and -Reset, and
	// X-Ratelimit-Retry-After, which never were a standard.
	XRateLimit = headers.XRateLimit
)

// DefaultStyle returns the style of a middleware without WithStyle: Draft and XRateLimit,
// with a jitter of 10 %.
func DefaultStyle() Style { return headers.DefaultStyle() }
