package envoy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

// routes are what of Envoy's filter the example has no use for: a look before and a debit
// after, hits that are given back, a limit that the request brings with it, and metadata
// from the answer.
const routes = `- match: {prefix: /tokens}
                          route: {cluster: app}
                          response_headers_to_add:
                            - header: {key: plan, value: "%DYNAMIC_METADATA(answer:metadata:plan)%"}
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
                        - match: {prefix: /brings}
                          route: {cluster: app}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{request_headers: {header_name: x-user, descriptor_key: brings}}]
                                  limit:
                                    dynamic_metadata:
                                      metadata_key: {key: limits, path: [{key: own}]}
                        - match: {prefix: /export}`

// own puts the limit of /brings where Envoy looks for it.
const own = `http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata: [{metadata_namespace: limits, value: {own: {requests_per_unit: 2, unit: HOUR}}}]
`

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
func TestHits(t *testing.T) {
	binary(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	text := "domain: edge\ndescriptors:\n  - {key: tokens, metadata: {plan: gold}, rate_limit: {unit: year, requests_per_unit: 5}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", file, "--rls-count-denied", "--rls-metadata")
	p := startProxy(t, []string{n.GRPC}, "- match: {prefix: /export}", routes, "http_filters:\n", own, "domain: edge\n", "domain: edge\n                      metadata_namespace: answer\n")
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
		resp := p.get(t, step.path, "alice")
		if resp.status != step.status {
			t.Errorf("step %d: %d, want %d", i, resp.status, step.status)
		}
		if got := resp.header.Get("Plan"); step.path == "/tokens" && step.status == 200 && got != "gold" {
			t.Errorf("step %d: metadata says %q", i, got)
		}
		process.Await(t, patience, func() error {
			if got := hits(t, n, "alice"); got != step.then {
				return fmt.Errorf("step %d: %s, want %s", i, got, step.then)
			}
			return nil
		})
	}
	for i, want := range []int{200, 200, 429} {
		resp := p.get(t, "/brings", "alice")
		if limit := resp.header.Get("X-RateLimit-Limit"); resp.status != want || limit != "2, 2;w=3600" {
			t.Errorf("with a limit of its own, request %d: %d %q", i, resp.status, limit)
		}
	}
}
