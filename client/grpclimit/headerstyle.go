package grpclimit

import (
	"github.com/weirlimit/weir/internal/headers"
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
