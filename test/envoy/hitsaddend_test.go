package envoy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// hitsRoutes look at the tokens of a user before a request and debit them after it, or give
// hits back.
const hitsRoutes = `- match: {prefix: /tokens}
                          route: {cluster: app}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}]
                                  hits_addend: {number: 0}
                                - actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}]
                                  hits_addend: {number: 3}
                                  apply_on_stream_done: true
                        - match: {prefix: /refund}
                          route: {cluster: app}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}]
                                  hits_addend: {number: 3, is_negative_hits: true}
                        - match: {prefix: /export}`

// hits returns the status and what is left of the tokens of a user, by looking.
func hits(t *testing.T, n *process.Node, user string) string {
	t.Helper()
	body := `{"domain":"edge","descriptors":[{"entries":[{"key":"tokens","value":"` + user + `"}],"hitsAddend":"0"}]}`
	resp, err := http.Post("http://"+n.HTTP+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		OverallCode string
		Statuses    []struct{ LimitRemaining int }
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Statuses) != 1 {
		t.Fatalf("%+v, %v", answer, err)
	}
	return fmt.Sprint(answer.OverallCode, " ", answer.Statuses[0].LimitRemaining)
}

// What a request costs is known afterwards: it looks first, and Envoy debits when it is
// over. A debit that was too much denies the next request, until hits are given back.
func TestHitsAddend(t *testing.T) {
	n := nodeWith(t, "{key: tokens, rate_limit: {unit: year, requests_per_unit: 5}}", "--rls-count-denied")
	p := startProxy(t, []string{n.GRPC}, exportMatch, hitsRoutes)
	p.healthy(t, 2)
	for i, step := range []struct {
		path   string
		status int
		then   string // what is left when the debit has come
	}{
		{"/tokens", 200, "OK 2"}, {"/tokens", 200, "OVER_LIMIT 0"}, // 6 of 5
		{"/tokens", 429, "OVER_LIMIT 0"}, // it has debited as well: 9
		{"/refund", 200, "OVER_LIMIT 0"}, {"/refund", 200, "OK 2"}, {"/tokens", 200, "OVER_LIMIT 0"},
	} {
		if resp := p.get(t, step.path, "alice"); resp.status != step.status {
			t.Errorf("step %d: %d, want %d", i, resp.status, step.status)
		}
		process.Await(t, patience, func() error {
			if got := hits(t, n, "alice"); got != step.then {
				return fmt.Errorf("step %d: %s, want %s", i, got, step.then)
			}
			return nil
		})
	}
}
