package api

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const metricRules = `
domain: default
rules:
  - {id: secret-rule, when: {endpoint: /secret}, per: [user], limits: [{limit: 2, window: 1h}]}
  - {id: unused, limits: [{limit: 2, window: 1h}], when: {endpoint: /unused}}
  - {id: tried, limits: [{limit: 0, window: 1h}], when: {endpoint: /tried}, enforce: 0}
  - {id: mute, when: {endpoint: /mute}, limits: [{limit: 9, window: 1h}]}
`

const wantMetrics = `
weir_checks_total{result="allowed",source="fail_open"} 2
weir_checks_total{result="allowed",source="no_rule"} 5
weir_checks_total{result="allowed",source="overloaded"} 0
weir_checks_total{result="allowed",source="owner"} 5
weir_checks_total{result="denied",source="fail_open"} 0
weir_checks_total{result="denied",source="no_rule"} 0
weir_checks_total{result="denied",source="overloaded"} 0
weir_checks_total{result="denied",source="owner"} 3
weir_check_duration_seconds_count{api="auth"} 1
weir_check_duration_seconds_sum{api="auth"} 0.0625
weir_check_duration_seconds_bucket{api="batch",le="0.05"} 0
weir_check_duration_seconds_bucket{api="batch",le="0.1"} 1
weir_check_duration_seconds_count{api="batch"} 1
weir_check_duration_seconds_sum{api="batch"} 0.0625
weir_check_duration_seconds_bucket{api="check",le="0.05"} 0
weir_check_duration_seconds_bucket{api="check",le="0.1"} 7
weir_check_duration_seconds_count{api="check"} 7
weir_check_duration_seconds_sum{api="check"} 0.4375
weir_check_duration_seconds_count{api="envoy"} 1
weir_check_duration_seconds_sum{api="envoy"} 0.0625
weir_check_duration_seconds_count{api="stream"} 1
weir_check_duration_seconds_sum{api="stream"} 0.0625
weir_check_errors_total{api="auth",code="InvalidArgument"} 1
weir_check_errors_total{api="batch",code="InvalidArgument"} 1
weir_check_errors_total{api="check",code="InvalidArgument"} 1
weir_check_errors_total{api="check",code="Canceled"} 1
weir_check_errors_total{api="envoy",code="InvalidArgument"} 1
weir_check_errors_total{api="stream",code="InvalidArgument"} 1
weir_rule_limits_total{domain="default",result="allowed",rule="secret-rule"} 3
weir_rule_limits_total{domain="default",result="denied",rule="secret-rule"} 3
weir_rule_limits_total{domain="default",result="undecided",rule="mute"} 2
weir_rule_limits_total{domain="default",result="undecided",rule="secret-rule"} 0
weir_rule_limits_total{domain="default",result="would_deny",rule="tried"} 1
`

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, metricRules)
		f.silent = func(take shard.Take) bool { return take.Limit.Limit == 9 }
		f.delay = time.Second / 16
		for _, text := range []string{
			"user=alice endpoint=/secret",        // allowed by its owner
			"user=alice endpoint=/secret",        // allowed
			"user=alice endpoint=/secret",        // denied
			"user=alice endpoint=/secret cost=3", // denied
			"user=alice",                         // no rule
			"user=alice endpoint=/mute",          // fail open
			"user=alice endpoint=/tried",         // allowed, although there is no room
		} {
			f.check(t, text)
		}
		_, err := f.server().CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
			request("user=bob endpoint=/secret peek"), request("user=bob"), request("user=bob endpoint=/mute"),
		}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Limiter.envoy.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "default", Descriptors: apitest.Descriptors("user=carol endpoint=/secret", "user=alice endpoint=/secret", "user=carol"),
		})
		if err != nil {
			t.Fatal(err)
		}
		stream := f.stream(t)
		stream.send(1, "user=alice")
		stream.receive()
		send(f.handler(t), http.MethodGet, "/auth", "")
		// What is refused is counted as an error only.
		send(f.handler(t), http.MethodGet, "/auth/"+strings.Repeat("d", 65), "")
		stream.send(2, "user=")
		stream.receive()
		_, err = f.server().CheckRateLimit(t.Context(), request("user="))
		refused(t, err, "identifier: must not be empty")
		_, err = f.server().CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{})
		refused(t, err, "requests: must not be empty")
		if _, err = f.Limiter.envoy.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{}); err == nil {
			t.Error("a request of Envoy without a domain was decided")
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err = f.server().CheckRateLimit(gone, request("user=alice")); status.Code(err) != codes.Canceled {
			t.Errorf("for a caller that has gone: %v", err)
		}
		checkMetrics(t, f)
	})
}

func checkMetrics(t *testing.T, f *fixture) {
	w := send(f.handler(t), http.MethodGet, "/metrics", "")
	text := w.Body.String()
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	for line := range strings.Lines(strings.TrimPrefix(wantMetrics, "\n")) {
		if !strings.Contains(text, line) {
			t.Errorf("no %s", line)
		}
	}
	for _, key := range []string{"alice", "bob", "carol", "/secret", "/mute", "unused"} {
		if strings.Contains(text, key) {
			t.Errorf("the metrics name %s", key)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	problems, err := testutil.GatherAndLint(f.registry)
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return strings.HasPrefix(p.Metric, "ratelimit_") }) // as others have named them
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
