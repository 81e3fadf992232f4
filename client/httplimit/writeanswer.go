package httplimit

import (
	"net/http"

	"github.com/weirlimit/weir/internal/headers"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
