package envoy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
	envoyrules "github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/shard"
)

const descriptorRules = `
domain: edge
descriptors:
  - {key: s, rate_limit: {unit: second, requests_per_unit: 5}}
  - {key: m, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: h, rate_limit: {unit: hour, requests_per_unit: 5}}
  - {key: d, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: w, rate_limit: {unit: week, requests_per_unit: 5}}
  - {key: mo, rate_limit: {unit: month, requests_per_unit: 5}}
  - {key: y, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: user, rate_limit: {name: per-user, unit: minute, requests_per_unit: 3}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 4}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: per-user}]}}
  - {key: vip, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: per-user}, {name: nonesuch}]}}
  - {key: banned, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: most, rate_limit: {unit: minute, requests_per_unit: 4294967295}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q1, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: q2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: share, value: "x*", share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 2}}
---
domain: native
rules: [{id: user, per: [user], limits: [{limit: 3, window: 1m}]}]
`

// envoyStep is one request to Envoy's service and its answer, and what comes after it.
type envoyStep struct {
	domain      string // empty for edge
	hits        uint32
	descriptors []string
	want        string
	wait        time.Duration
}

func (f *fixture) step(t *testing.T, steps []envoyStep) {
	t.Helper()
	for i, s := range steps {
		domain := s.domain
		if domain == "" {
			domain = "edge"
		}
		resp, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: domain, Descriptors: apitest.Descriptors(s.descriptors...), HitsAddend: s.hits,
		})
		got := apitest.BriefEnvoy(resp)
		if err != nil {
			got = status.Code(err).String() + ": " + status.Convert(err).Message()
		}
		if got != s.want {
			t.Errorf("step %d, %d hits of %q\ngot  %s\nwant %s", i, s.hits, s.descriptors, got, s.want)
		}
		<-time.After(s.wait + time.Nanosecond)
	}
}

func TestDescriptorSemantics(t *testing.T) {
	const second = time.Second
	for name, tc := range map[string]struct {
		config Config
		steps  []envoyStep
	}{
		"units, in windows as of the epoch": {Config{}, []envoyStep{
			{"", 0, []string{"s=", "m="}, "OK | OK  5/SECOND left 4 reset 1s | OK  5/MINUTE left 4 reset 1m0s", 30*second + 400*time.Millisecond},
			{"", 0, []string{"s=", "m="}, "OK | OK  5/SECOND left 4 reset 1s | OK  5/MINUTE left 3 reset 30s", 29*second + 600*time.Millisecond},
			{"", 0, []string{"s=", "m="}, "OK | OK  5/SECOND left 4 reset 1s | OK  5/MINUTE left 4 reset 1m0s", 0},
			{"", 0, []string{"h=", "d="}, "OK | OK  5/HOUR left 4 reset 59m0s | OK  5/DAY left 4 reset 23h59m0s", 0},
			{"", 0, []string{"w=", "mo="}, "OK | OK  5/WEEK left 4 reset 119h59m0s | OK  5/MONTH left 4 reset 551h59m0s", 0},
			{"", 0, []string{"y=", "none="}, "OK | OK  5/YEAR left 4 reset 8591h59m0s | OK", 0},
		}},
		"hits": {Config{}, []envoyStep{
			{"", 0, []string{"user=a hits=0"}, "OK | OK per-user 3/MINUTE left 3 reset 1m0s", 0},
			{"", 2, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 1 reset 1m0s", 0},
			{"", 2, []string{"user=a"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 7, []string{"user=a hits=1"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=0"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=2 negative"}, "OK | OK per-user 3/MINUTE left 2 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=9 negative"}, "OK | OK per-user 3/MINUTE left 3 reset 1m0s", 0},
			{"", 0, []string{"user=b negative"}, "OK | OK per-user 3/MINUTE left 3 reset 1m0s", 0},
		}},
		"all or nothing": {Config{}, []envoyStep{
			{"", 3, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"path=p hits=2", "user=a", "none=x"}, "OVER_LIMIT | OK  4/MINUTE left 4 reset 1m0s | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OK", 0},
			{"", 0, []string{"path=p path=p hits=2"}, "OK | OK", 0},
			{"", 0, []string{"path=p hits=2", "path=p hits=3"}, "OVER_LIMIT | OK  4/MINUTE left 4 reset 1m0s | OVER_LIMIT  4/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"path=p hits=2", "path=p hits=2"}, "OK | OK  4/MINUTE left 2 reset 1m0s | OK  4/MINUTE left 0 reset 1m0s", 0},
		}},
		"unlimited, replaces, limits at the ends": {Config{}, []envoyStep{
			{"", 0, []string{"user=a", "free=x"}, "OK | OK | OK left 4294967295 reset 0s", 0},
			{"", 9, []string{"user=a", "vip=x"}, "OK | OK | OK  9/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"vip=x", "user=a"}, "OVER_LIMIT | OVER_LIMIT  9/MINUTE left 0 reset 1m0s | OK", 0},
			{"", 0, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 2 reset 1m0s", 0},
			{"", 0, []string{"banned=x"}, "OVER_LIMIT | OVER_LIMIT  0/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"banned=x hits=0"}, "OK | OK  0/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"most=x"}, "OK | OK  4294967295/MINUTE left 4294967294 reset 1m0s", 0},
		}},
		"a shadow": {Config{}, []envoyStep{
			{"", 0, []string{"shadow=x", "path=p"}, "OK | OK  1/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 3 reset 1m0s", 0},
			{"", 0, []string{"shadow=x", "path=p"}, "OK | OK  1/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 2 reset 1m0s", 0},
		}},
		"quotas": {Config{}, []envoyStep{
			{"", 0, []string{"q1=", "q2=", "path=p"}, "OK | OK  1/MINUTE left 0 reset 1m0s | OK  2/MINUTE left 1 reset 1m0s | OK  4/MINUTE left 3 reset 1m0s", 0},
			{"", 0, []string{"q1=", "q2=", "path=p"}, "OK | OVER_LIMIT  1/MINUTE left 0 reset 1m0s | OK  2/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 2 reset 1m0s", 0},
			{"", 0, []string{"q1=", "q2=", "path=p"}, "OVER_LIMIT | OVER_LIMIT  1/MINUTE left 0 reset 1m0s | OVER_LIMIT  2/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 2 reset 1m0s", 0},
			{"", 0, []string{"path=p hits=0"}, "OK | OK  4/MINUTE left 2 reset 1m0s", 0},
			{"", 3, []string{"q2=x", "path=p"}, "OVER_LIMIT | OVER_LIMIT  2/MINUTE left 0 reset 1m0s | OVER_LIMIT  4/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"q2=x hits=0"}, "OK | OK  2/MINUTE left 2 reset 1m0s", 0},
		}},
		"overrides": {Config{}, []envoyStep{
			{"", 0, []string{"user=a override=7/2"}, "OK | OK  7/MINUTE left 6 reset 1m0s", 0},
			{"", 0, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 1 reset 1m0s", 0},
			{"", 0, []string{"user=a override=7/3"}, "OK | OK  7/HOUR left 6 reset 1h0m0s", 0},
			{"", 2, []string{"shadow=x override=1/1"}, "OVER_LIMIT | OVER_LIMIT  1/SECOND left 0 reset 1s", 0},
			{"", 0, []string{"new=x other=y override=2/6"}, "OK | OK  2/YEAR left 1 reset 8592h0m0s", 0},
			{"", 0, []string{"new=x override=2/5*2"}, "OK | OK  2/MONTH*2 left 1 reset 552h0m0s", 0},
			{"native", 0, []string{"user=a override=1/2", "user=a"}, "OK | OK  1/MINUTE left 0 reset 1m0s | OK user 3/MINUTE left 2 reset 59.999999995s", 0},
			{"native", 0, []string{"user=a", "user=a override=1/2", "user=b"}, "OVER_LIMIT | OK user 3/MINUTE left 2 reset 59.999999994s | OVER_LIMIT  1/MINUTE left 0 reset 1m0s | OK user 3/MINUTE left 3 reset 0s", 0},
			{"unknown", 0, []string{"user=a override=1/2"}, "OK | OK", 0},
		}},
		"shared thresholds": {Config{}, []envoyStep{
			{"", 2, []string{"share=x1"}, "OK | OK  2/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"share=x2"}, "OVER_LIMIT | OVER_LIMIT  2/MINUTE left 0 reset 1m0s", 0},
		}},
		"denied hits count, and each descriptor alone": {Config{CountDenied: true}, []envoyStep{
			{"", 5, []string{"user=a", "path=p hits=1"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 3 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=0"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=1 negative"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=3 negative"}, "OK | OK per-user 3/MINUTE left 2 reset 1m0s", 0},
			{"", 2, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=0"}, "OK | OK per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=9 negative"}, "OK | OK per-user 3/MINUTE left 3 reset 1m0s", 0},
			{"", 0, []string{"most=x hits=2147483648"}, "OK | OK  4294967295/MINUTE left 2147483647 reset 1m0s", 0},
			{"", 0, []string{"banned=x", "shadow=x hits=2"}, "OVER_LIMIT | OVER_LIMIT  0/MINUTE left 0 reset 1m0s | OK  1/MINUTE left 0 reset 1m0s", 0},
			{"", 2, []string{"q1=", "path=p"}, "OVER_LIMIT | OVER_LIMIT  1/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 1 reset 1m0s", 0},
			{"", 2, []string{"path=p override=9/2"}, "OK | OK  9/MINUTE left 4 reset 1m0s", 0},
		}},
		"all is a shadow": {Config{Shadow: true}, []envoyStep{
			{"", 4, []string{"user=a", "path=p"}, "OK | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 0 reset 1m0s", 0},
			{"", 0, []string{"user=a hits=0", "path=p hits=0"}, "OK | OK per-user 3/MINUTE left 3 reset 1m0s | OK  4/MINUTE left 0 reset 1m0s", 0},
			{"native", 4, []string{"user=a", "user=b hits=1"}, "OK | OVER_LIMIT user 3/MINUTE left 0 reset 0s | OK user 3/MINUTE left 2 reset 59.999999999s", 0},
		}},
		"all are quotas": {Config{Quota: true}, []envoyStep{
			{"", 4, []string{"user=a", "path=p"}, "OK | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OK  4/MINUTE left 0 reset 1m0s", 0},
			{"", 4, []string{"user=a", "path=p"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OVER_LIMIT  4/MINUTE left 0 reset 1m0s", 0},
			{"", 4, []string{"user=a", "none="}, "OK | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OK", 0},
			{"", 4, []string{"user=a", "free="}, "OK | OK | OK left 4294967295 reset 0s", 0},
			{"", 0, []string{"path=q hits=5", "free="}, "OVER_LIMIT | OVER_LIMIT  4/MINUTE left 0 reset 1m0s | OK left 4294967295 reset 0s", 0},
			{"native", 4, []string{"user=a"}, "OVER_LIMIT | OVER_LIMIT user 3/MINUTE left 0 reset 0s", 0},
		}},
		"another algorithm": {Config{Rules: envoyrules.Options{Algorithm: algorithms.SlidingWindow}}, []envoyStep{
			{"", 3, []string{"user=a"}, "OK | OK per-user 3/MINUTE left 0 reset 1m41s", 0},
			{"", 0, []string{"user=a"}, "OVER_LIMIT | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s", 0},
			{"", 2, []string{"user=a override=1/2"}, "OVER_LIMIT | OVER_LIMIT  1/MINUTE left 0 reset 1m40s", 0},
		}},
		"headers": {Config{Headers: []string{"L", "M", "R"}}, []envoyStep{
			{"", 0, []string{"path=p", "user=a", "none=", "free="}, "OK L=4 M=3 R=60 | OK  4/MINUTE left 3 reset 1m0s | OK | OK | OK left 4294967295 reset 0s", 0},
			{"", 0, []string{"path=p", "user=a"}, "OK L=4 M=2 R=60 | OK  4/MINUTE left 2 reset 1m0s | OK per-user 3/MINUTE left 2 reset 1m0s", 0},
			{"", 4, []string{"user=a", "path=p"}, "OVER_LIMIT L=4 M=0 R=60 Retry-After=60 | OVER_LIMIT per-user 3/MINUTE left 0 reset 1m0s | OVER_LIMIT  4/MINUTE left 0 reset 1m0s", 0},
			{"", 2, []string{"q1=", "user=a"}, "OVER_LIMIT L=1 M=0 R=60 Retry-After=60 | OVER_LIMIT  1/MINUTE left 0 reset 1m0s | OK per-user 3/MINUTE left 2 reset 1m0s", 0},
			{"", 0, []string{"none="}, "OK | OK", 0},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newConfiguredFixture(t, descriptorRules, tc.config).step(t, tc.steps) })
		})
	}
}

// What an attacker may put into a header is no error, which could let the request pass.
func TestDescriptorsTakeAnyValue(t *testing.T) {
	f := newFixture(t, strings.ReplaceAll(descriptorRules, "requests_per_unit: 3", "requests_per_unit: 1"))
	for _, value := range []string{"\xff\xfe", strings.Repeat("a", 60<<10), "\x00", " "} {
		message := append([]byte("\x0a\x04edge"), appendRawDescriptor("user", value)...)
		for i, want := range []string{"OK", "OVER_LIMIT"} {
			answer, err := f.check(t.Context(), wire.NewPart(message))
			if err != nil {
				t.Fatalf("%.10q: %v", value, err)
			}
			if over := strings.HasSuffix(string(answer.ReadOnlyData()), "\x08\x02"); over != (i == 1) {
				t.Errorf("%.10q: over %v, want %s", value, over, want)
			}
			answer.Free()
		}
	}
}

// appendRawDescriptor encodes one that the library would refuse to.
func appendRawDescriptor(key, value string) []byte {
	b, descriptor := wire.BeginMessage(nil, 2)
	b, entry := wire.BeginMessage(b, 1)
	b = wire.AppendString(wire.AppendString(b, 1, key), 2, value)
	return wire.EndMessage(wire.EndMessage(b, entry), descriptor)
}

// An undecided request fails, so that Envoy applies its own policy. It does not fail where the answer does
// not depend on the counter.
func TestDescriptorsUndecided(t *testing.T) {
	f := newFixture(t, descriptorRules)
	f.Silent = func(shard.Take) bool { return true }
	f.step(t, []envoyStep{
		{"", 0, []string{"user=a"}, "Unavailable: the node that counts does not answer", 0},
		{"", 0, []string{"free=a", "none="}, "OK | OK left 4294967295 reset 0s | OK", 0},
		{"", 0, []string{""}, "OK | OK", 0},
	})
	if got := testutil.ToFloat64(f.stats.errors.WithLabelValues("undecided")); got != 1 {
		t.Errorf("%v errors", got)
	}
}

// A node without time denies, as an error would let the request pass.
func TestDescriptorsOverloaded(t *testing.T) {
	for _, config := range []Config{{}, {CountDenied: true}} {
		f := newConfiguredFixture(t, descriptorRules, config)
		f.checks.Decider = overloadedAll{}
		f.step(t, []envoyStep{{"", 0, []string{"user=a", "none="}, "OVER_LIMIT | OVER_LIMIT | OK", 0}})
	}
}

type overloadedAll struct{ check.Decider }

func (overloadedAll) Decide(_ context.Context, groups []shard.Group) {
	for i := range groups {
		for j := range groups[i].Takes {
			groups[i].Takes[j].Source = shard.Overloaded
		}
	}
}

// Where no node answers, a share of the limit is better than all of it: but descriptors that the reference
// would count as if they were allowed have no share.
func TestDescriptorPolicies(t *testing.T) {
	for _, tc := range []struct {
		config Config
		want   shard.Policy
	}{{Config{}, shard.FailLocal}, {Config{CountDenied: true}, shard.FailOpen}} {
		f := newConfiguredFixture(t, descriptorRules, tc.config)
		f.Silent = func(take shard.Take) bool {
			if take.OnFailure != tc.want || take.Shadow != tc.config.CountDenied { // a shadow is lent nothing
				t.Errorf("%+v: %+v", tc.config, take)
			}
			return false
		}
		if _, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors("user=a")}); err != nil {
			t.Error(err)
		}
	}
}

// In parallel, no more pass than the limit.
func TestDescriptorsConcurrently(t *testing.T) {
	f := newFixture(t, "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 100}}, {key: path, rate_limit: {unit: year, requests_per_unit: 150}}]")
	passed := make(chan int)
	for range 4 {
		go func() {
			n := 0
			for range 100 {
				resp, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors("user=a", "path=p")})
				if err != nil {
					t.Error(err)
				}
				if resp.GetOverallCode() == rlsv3.RateLimitResponse_OK {
					n++
				}
			}
			passed <- n
		}()
	}
	sum := 0
	for range 4 {
		sum += <-passed
	}
	if sum != 100 {
		t.Errorf("%d passed, want 100", sum)
	}
	f.step(t, []envoyStep{{"", 50, []string{"path=p"}, fmt.Sprintf("OK | OK  150/YEAR left 0 reset %v", untilYear()), 0}})
}

// untilYear is how long the year lasts for descriptors.
func untilYear() time.Duration {
	const year = 365 * 24 * 60 * 60
	return time.Duration(year-time.Now().Unix()%year) * time.Second
}

func TestEnvoyErrorsAreNeverUnknown(t *testing.T) {
	f := newFixture(t, descriptorRules)
	for _, req := range []*rlsv3.RateLimitRequest{
		{}, {Domain: "edge"}, {Descriptors: apitest.Descriptors("user=a")},
	} {
		_, err := f.ShouldRateLimit(t.Context(), req)
		if code := status.Code(err); code != codes.InvalidArgument {
			t.Errorf("%v: %v, want InvalidArgument", req, err)
		}
	}
}
