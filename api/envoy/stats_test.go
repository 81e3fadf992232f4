package envoy

import (
	"io"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/internal/apitest"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
)

// Metrics have the names that dashboards for envoyproxy/ratelimit know.
func TestDescriptorMetrics(t *testing.T) {
	f := newConfiguredFixture(t, `
domain: edge
descriptors:
  - {key: a, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - key: b
    value: x
    descriptors:
      - key: c
        shadow_mode: true
        rate_limit: {unit: year, requests_per_unit: 2}
        descriptors: [{key: d, rate_limit: {unit: year, requests_per_unit: 2}}]
`, Config{NearLimit: 0.5})
	f.step(t, nil)
	for _, text := range []string{"a=1 hits=4", "a=1 hits=3", "a=1 hits=4", "a=1 hits=2 negative", "a=2", "b=x c=1 hits=3", "b=x c=1 d=1", "none="} {
		if _, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors(text)}); err != nil {
			t.Fatal(err)
		}
	}
	const want = `
# HELP ratelimit_service_rate_limit_near_limit Hits of descriptors that were near the limit and within it, by the limit's name.
# TYPE ratelimit_service_rate_limit_near_limit counter
ratelimit_service_rate_limit_near_limit{domain="edge",key1="a_1"} 2
ratelimit_service_rate_limit_near_limit{domain="edge",key1="a_2"} 0
ratelimit_service_rate_limit_near_limit{domain="edge",key1="b_x",key2="c"} 0
# HELP ratelimit_service_rate_limit_over_limit Hits of descriptors that were over the limit, by the limit's name.
# TYPE ratelimit_service_rate_limit_over_limit counter
ratelimit_service_rate_limit_over_limit{domain="edge",key1="a_1"} 4
ratelimit_service_rate_limit_over_limit{domain="edge",key1="a_2"} 0
ratelimit_service_rate_limit_over_limit{domain="edge",key1="b_x",key2="c"} 3
# HELP ratelimit_service_rate_limit_shadow_mode Hits of descriptors that were over the limit and allowed because of shadow_mode, by the limit's name.
# TYPE ratelimit_service_rate_limit_shadow_mode counter
ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="a_1"} 0
ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="a_2"} 0
ratelimit_service_rate_limit_shadow_mode{domain="edge",key1="b_x",key2="c"} 3
# HELP ratelimit_service_rate_limit_total_hits Hits of descriptors, by the limit's name.
# TYPE ratelimit_service_rate_limit_total_hits counter
ratelimit_service_rate_limit_total_hits{domain="edge",key1="a_1"} 11
ratelimit_service_rate_limit_total_hits{domain="edge",key1="a_2"} 1
ratelimit_service_rate_limit_total_hits{domain="edge",key1="b_x",key2="c"} 4
# HELP ratelimit_service_rate_limit_total_negative_hits Hits of descriptors that were given back, by the limit's name.
# TYPE ratelimit_service_rate_limit_total_negative_hits counter
ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="a_1"} 2
ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="a_2"} 0
ratelimit_service_rate_limit_total_negative_hits{domain="edge",key1="b_x",key2="c"} 0
# HELP ratelimit_service_rate_limit_within_limit Hits of descriptors that were within the limit, by the limit's name.
# TYPE ratelimit_service_rate_limit_within_limit counter
ratelimit_service_rate_limit_within_limit{domain="edge",key1="a_1"} 7
ratelimit_service_rate_limit_within_limit{domain="edge",key1="a_2"} 1
ratelimit_service_rate_limit_within_limit{domain="edge",key1="b_x",key2="c"} 1
`
	var names []string
	for i := range statDescs {
		names = append(names, strings.Split(statDescs[i][0].String(), `"`)[1])
	}
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if got := apitest.Checks(t, f.registry, "allowed", "no_rule"); got != 1 {
		t.Errorf("%v without a rule", got)
	}
}

// In the reference, what is counted above the limit is part near and part over.
func TestDescriptorMetricsOfCountedDenials(t *testing.T) {
	f := newConfiguredFixture(t, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 10}}]", Config{CountDenied: true})
	for _, hits := range []uint32{7, 5, 1} {
		if _, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors("a="), HitsAddend: hits}); err != nil {
			t.Fatal(err)
		}
	}
	c := f.stats.of([]byte("edge.a"))
	for i, want := range [statCounts]uint64{totalHits: 13, withinLimit: 7, nearLimit: 2, overLimit: 3} {
		if got := c.counts[i].Load(); got != want {
			t.Errorf("counter %d is %d, want %d", i, got, want)
		}
	}
	text, err := io.ReadAll(askEnvoy(f.handler(t), "GET", "/metrics", "").Body)
	if err != nil || !strings.Contains(string(text), `weir_rule_limits_total{domain="edge",result="denied",rule="a"} 2`) {
		t.Errorf("%v %s", err, text)
	}
}

// Addresses in names of metrics are written as the reference writes them, so that dashboards
// find them: its SanitizeStatName, July 2026.
func TestDescriptorMetricsOfAddresses(t *testing.T) {
	f := newConfiguredFixture(t, `
domain: edge
descriptors:
  - {key: remote_address, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: route, value_to_metric: true, descriptors: [{key: remote_address, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}]}
  - {key: net, value: 10.1.2.3, rate_limit: {unit: year, requests_per_unit: 10}}
`, Config{})
	for _, text := range []string{
		"remote_address=10.0.0.1", "remote_address=10.0.0.1", "remote_address=2001:db8::1", "remote_address=10.0.0.1:8080",
		"route=a|b remote_address=192.0.2.7", "net=10.1.2.3", "remote_address=1.2.3", "remote_address=v1.22.333.4444",
	} {
		if _, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors(text)}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := io.ReadAll(askEnvoy(f.handler(t), "GET", "/metrics", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`key1="remote_address_10_0_0_1"} 2`, `key1="remote_address_2001_db8__1"} 1`, `key1="remote_address_10_0_0_1_8080"} 1`,
		`key1="route_a_b",key2="remote_address_192_0_2_7"} 1`, `key1="net_10_1_2_3"} 1`,
		`key1="remote_address_1",key2="2"} 1`, `key1="remote_address_v1_22_333_4444"} 1`,
	} {
		if want = `ratelimit_service_rate_limit_total_hits{domain="edge",` + want; !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// Values of callers cannot fill the memory.
func TestDescriptorMetricsAreBounded(t *testing.T) {
	s := newFixture(t, descriptorRules).stats
	for i := range maxNames + 10 {
		s.of([]byte("d.k_" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + envoyrules.Unit(i%200).String() + strings.Repeat("y", i/200))).counts[totalHits].Add(1)
	}
	if n := len(s.byName); n > maxNames+1 {
		t.Errorf("%d names", n)
	}
}
