package headers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"
)

// maxPolicies is how many policies clients are told of. Proxies have little room for
// header fields, and a name has up to 131 bytes.
const maxPolicies = 8

// Set sets the header fields of an answer, in the spelling that people look for, such as
// RateLimit: HTTP does not care, but h.Get looks for Ratelimit. The error says that a policy's name cannot be said in a structured
// field, as it is not ASCII; names of rules are.
func (s Style) Set(h http.Header, a Answer) error {
	wait := s.jitter(a.RetryAfter)
	if a.Policy.Name != "" {
		for _, form := range s.Forms {
			if err := s.set(h, form, a, wait); err != nil {
				return err
			}
		}
	}
	if wait > 0 {
		h["Retry-After"] = []string{strconv.FormatInt(seconds(wait), 10)}
	}
	return nil
}

func (s Style) set(h http.Header, form Form, a Answer, wait time.Duration) error {
	// A client that heeds either this or Retry-After must not be told two times.
	window := a.Reset
	if wait > 0 {
		window = wait
	}
	switch form {
	case Draft:
		return setDraft(h, a, seconds(window))
	case Draft7:
		return setDraft7(h, a, seconds(window))
	case Draft6:
		setNumbers(h, "RateLimit-", a, seconds(window))
		return setQuotas(h, a)
	default:
		reset := seconds(a.Reset)
		if s.Epoch {
			reset = a.ResetTime
		}
		setNumbers(h, "X-RateLimit-", a, reset)
		if wait > 0 {
			h["X-Ratelimit-Retry-After"] = []string{strconv.FormatInt(seconds(wait), 10)}
		}
		return nil
	}
}

func setDraft(h http.Header, a Answer, window int64) error {
	var policies httpsfv.List
	for _, p := range a.policies() {
		policies = append(policies, withWindow(httpsfv.NewItem(p.Name), p, true))
	}
	if err := setField(h, "RateLimit-Policy", policies); err != nil {
		return err
	}
	state := httpsfv.NewItem(a.Policy.Name)
	state.Params.Add("r", a.Remaining)
	state.Params.Add("t", window)
	return setField(h, "RateLimit", httpsfv.List{state})
}

func setDraft7(h http.Header, a Answer, window int64) error {
	state := httpsfv.NewDictionary()
	state.Add("limit", httpsfv.NewItem(a.Policy.Limit))
	state.Add("remaining", httpsfv.NewItem(a.Remaining))
	state.Add("reset", httpsfv.NewItem(window))
	if err := setField(h, "RateLimit", state); err != nil {
		return err
	}
	return setQuotas(h, a)
}

// setQuotas sets the RateLimit-Policy that is older than names.
func setQuotas(h http.Header, a Answer) error {
	var policies httpsfv.List
	for _, p := range a.policies() {
		policies = append(policies, withWindow(httpsfv.NewItem(p.Limit), p, false))
	}
	return setField(h, "RateLimit-Policy", policies)
}

// withWindow adds the parameters of p, and among them its quota where the item is not
// that already.
func withWindow(item httpsfv.Item, p Policy, quota bool) httpsfv.Item {
	if quota {
		item.Params.Add("q", p.Limit)
	}
	if p.Window > 0 {
		item.Params.Add("w", seconds(p.Window))
	}
	return item
}

func setField(h http.Header, name string, value httpsfv.StructuredFieldValue) error {
	text, err := httpsfv.Marshal(value)
	if err != nil {
		return err
	}
	h[name] = []string{text}
	return nil
}

func setNumbers(h http.Header, prefix string, a Answer, reset int64) {
	h[prefix+"Limit"] = []string{strconv.FormatInt(a.Policy.Limit, 10)}
	h[prefix+"Remaining"] = []string{strconv.FormatInt(a.Remaining, 10)}
	h[prefix+"Reset"] = []string{strconv.FormatInt(reset, 10)}
}

// policies returns the one that decided and the others, at most maxPolicies.
func (a Answer) policies() []Policy {
	return append([]Policy{a.Policy}, a.Others[:min(len(a.Others), maxPolicies-1)]...)
}
