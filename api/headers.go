package api

import (
	"net/http"
	"strconv"
	"time"

	"github.com/dunglas/httpsfv"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// setHeaders tells a decision in headers: those of
// draft-ietf-httpapi-ratelimit-headers-11, the older X-RateLimit ones with the
// reset in seconds from now, and on a denial how long to wait. Where nobody has
// decided there is nothing to tell.
//
// The names are set in the spelling that people look for; HTTP does not care.
func setHeaders(h http.Header, resp *weirv1.RateLimitResponse) error {
	if resp.GetResetAfter() == nil {
		return nil
	}
	reset := ceilSeconds(int64(resp.GetResetAfter().AsDuration()))
	policy := httpsfv.NewItem(resp.GetRuleId())
	policy.Params.Add("q", int64(resp.GetLimit()))
	if resp.GetWindow() != nil { // a calendar's windows differ in length
		policy.Params.Add("w", ceilSeconds(int64(resp.GetWindow().AsDuration())))
	}
	state := httpsfv.NewItem(resp.GetRuleId())
	state.Params.Add("r", int64(resp.GetRemainingTokens()))
	state.Params.Add("t", reset)
	for name, item := range map[string]httpsfv.Item{"RateLimit-Policy": policy, "RateLimit": state} {
		value, err := httpsfv.Marshal(httpsfv.List{item})
		if err != nil {
			return err
		}
		h[name] = []string{value}
	}
	h["X-RateLimit-Limit"] = []string{strconv.FormatUint(uint64(resp.GetLimit()), 10)}
	h["X-RateLimit-Remaining"] = []string{strconv.FormatUint(uint64(resp.GetRemainingTokens()), 10)}
	h["X-RateLimit-Reset"] = []string{strconv.FormatInt(reset, 10)}
	if resp.GetRetryAfter() != nil {
		wait := strconv.FormatInt(ceilSeconds(int64(resp.GetRetryAfter().AsDuration()/time.Nanosecond)), 10)
		h["Retry-After"] = []string{wait}
		h["X-Ratelimit-Retry-After"] = []string{wait}
	}
	return nil
}
