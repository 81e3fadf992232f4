package headers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// ProblemType is the Content-Type of a Problem: RFC 9457.
const ProblemType = "application/problem+json"

// Problem says in JSON why a request was not served.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	// Violated names policies, at most 8.
	Violated []string `json:"violated-policies,omitempty"`
}

// problemTypeBase is where draft-ietf-httpapi-ratelimit-headers registers its types.
const problemTypeBase = "https://iana.org/assignments/http-problem-types#"

// ProblemOf returns the problem of an answer that denies, with the status 429.
func ProblemOf(a Answer) Problem {
	if len(a.Violated) == 0 {
		return Problem{
			Type: "about:blank", Title: http.StatusText(http.StatusTooManyRequests), Status: http.StatusTooManyRequests,
			Detail: undecided,
		}
	}
	return Problem{
		Type: problemTypeBase + "quota-exceeded", Title: "Quota Exceeded", Status: http.StatusTooManyRequests,
		Detail: describe(a.Violated[0], a.RetryAfter), Violated: names(a.Violated),
	}
}

// Overloaded returns the problem of a server that has no time for a request, with the
// status 503.
func Overloaded(detail string) Problem {
	return Problem{
		Type: problemTypeBase + "temporary-reduced-capacity", Title: "Temporary Reduced Capacity",
		Status: http.StatusServiceUnavailable, Detail: detail,
	}
}

// Write answers a request with p. Header fields that belong to it are set before.
func (p Problem) Write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // it has nothing but texts and a number
	}
	w.Header().Set("Content-Type", ProblemType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n')) // a client that is gone does not matter
}

// undecided says why a request is denied that no policy denies.
const undecided = "no node could decide in time whether the limit has room"

// describe says in a sentence that p denies.
func describe(p Policy, retryAfter time.Duration) string {
	text := fmt.Sprintf("the limit %s, %d", p.Name, p.Limit)
	if p.Window > 0 {
		text += fmt.Sprintf(" in %v", p.Window)
	}
	if retryAfter > 0 {
		return text + ", has no room now"
	}
	return text + ", will never have room for it"
}
