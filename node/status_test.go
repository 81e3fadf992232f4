package node

import (
	"os"
	"path/filepath"
	"testing"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirlimit/weir/rules"
)

// A node says whether its rules are its own.
func TestOwnRules(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("{domain: d, rules: []}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"": false, file: true} {
		opts := testOptions(t)
		opts.Rules = path
		n, err := build(t.Context(), Network{}, opts, quiet())
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Self().OwnRules; got != want {
			t.Errorf("with --rules %q: %t", path, got)
		}
		n.close()
	}
}

// A leaving node does not become ready, however late it finds out that it was.
func TestLeavingIsNotUndone(t *testing.T) {
	t.Parallel()
	n, err := build(t.Context(), Network{}, testOptions(t), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	check := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, service := range []string{"", "weir.v1.RateLimiter", "envoy.service.ratelimit.v3.RateLimitService", "ratelimit"} {
			resp, err := n.health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || resp.GetStatus() != want {
				t.Errorf("%q: %v %v, want %v", service, resp.GetStatus(), err, want)
			}
		}
	}
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	n.setServing(true)
	check(healthpb.HealthCheckResponse_SERVING)
	n.leave(t.Context())
	n.setServing(true)
	check(healthpb.HealthCheckResponse_NOT_SERVING)
}

// Envoy may be told that a node without rules is of no use.
func TestHealthNeedsRules(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	opts.HealthNeedsRules, opts.Rules = true, ""
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	check := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := n.health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "ratelimit"})
		if err != nil || resp.GetStatus() != want {
			t.Errorf("%v %v, want %v", resp.GetStatus(), err, want)
		}
	}
	n.setServing(true)
	check(healthpb.HealthCheckResponse_NOT_SERVING)
	set, err := rules.Parse("f", []byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 1}}]"))
	if err != nil {
		t.Fatal(err)
	}
	n.rules = fixedRules{n.rules, set}
	n.tellEnvoy()
	check(healthpb.HealthCheckResponse_SERVING)
}
