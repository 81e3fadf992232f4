package envoy

import "testing"

// ownRoute has a limit that Envoy finds in the metadata of the request.
const ownRoute = `- match: {prefix: /brings}
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

// ownMetadata puts the limit where ownRoute looks for it.
const ownMetadata = `http_filters:
                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata: [{metadata_namespace: limits, value: {own: {requests_per_unit: 2, unit: HOUR}}}]
`

// A request that brings a limit with it is held to that limit, which no rule has.
func TestLimitOverride(t *testing.T) {
	n := nodeWith(t, "{key: tokens, rate_limit: {unit: year, requests_per_unit: 5}}")
	p := startProxy(t, []string{n.GRPC}, exportMatch, ownRoute, "http_filters:\n", ownMetadata)
	p.healthy(t, 2)
	for i, want := range []int{200, 200, 429} {
		resp := p.get(t, "/brings", "alice")
		if limit := resp.header.Get("X-RateLimit-Limit"); resp.status != want || limit != "2, 2;w=3600" {
			t.Errorf("request %d: %d %q", i, resp.status, limit)
		}
	}
}
