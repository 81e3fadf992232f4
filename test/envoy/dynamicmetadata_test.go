package envoy

import "testing"

// metadataRoute shows the application's client what Weir said of the rule.
const metadataRoute = `- match: {prefix: /plan}
                          route: {cluster: app}
                          response_headers_to_add:
                            - header: {key: plan, value: "%DYNAMIC_METADATA(answer:metadata:plan)%"}
                          typed_per_filter_config:
                            envoy.filters.http.ratelimit:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                              rate_limits:
                                - actions: [{request_headers: {header_name: x-user, descriptor_key: tokens}}]
                        - match: {prefix: /export}`

// A rule's metadata reaches Envoy as dynamic metadata.
func TestDynamicMetadata(t *testing.T) {
	n := nodeWith(t, "{key: tokens, metadata: {plan: gold}, rate_limit: {unit: year, requests_per_unit: 5}}", "--rls-metadata")
	p := startProxy(t, []string{n.GRPC}, exportMatch, metadataRoute, "domain: edge\n", "domain: edge\n                      metadata_namespace: answer\n")
	p.healthy(t, 2)
	resp := p.get(t, "/plan", "alice")
	if got := resp.header.Get("Plan"); resp.status != 200 || got != "gold" {
		t.Errorf("%d, metadata says %q", resp.status, got)
	}
}
