package httplimit

import (
	"net/http"

	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
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

// WriteAnswer writes the answer to a check into the response to the request that was
// checked, in a service that uses no middleware. An allowed request gets header fields,
// and its handler goes on. A denied one gets status 429 and a problem document as well:
// WriteAnswer then returns true, and the response is complete.
func WriteAnswer(w http.ResponseWriter, style Style, answer *weirv1.RateLimitResponse) (denied bool) {
	a := headers.Of(answer)
	_ = style.Set(w.Header(), a) // names of rules are ASCII
	if a.Denied {
		headers.ProblemOf(a).Write(w)
	}
	return a.Denied
}
