package envoy

import (
	"fmt"
	"strings"
	"testing"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/internal/apitest"
)

const boundRules = `
domain: edge
rules:
  - {id: client, per: [remote], limits: [{limit: 3, window: 1h}]}
  - {id: page, per: [path], when: {path: "/page*"}, limits: [{limit: 2, window: 1h}]}
  - {id: script, per: [remote], when: {path: "re:.*[.]php"}, limits: [{limit: 1, window: 1h}]}
  - {id: upload, per: [up], cost: size, limits: [{limit: 100, window: 1h}]}
  - {id: heavy, per: [heavy], cost: 3, limits: [{limit: 2147483648, window: 1h}]}
---
domain: tree
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: most, rate_limit: {unit: year, requests_per_unit: 4294967295}}
`

// entriesOf returns a descriptor's entries, n of them.
func entriesOf(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "k%d=v ", i)
	}
	return text.String()
}

// codesOf tells the overall code of an answer and those of its descriptors.
func codesOf(r *rlsv3.RateLimitResponse) string {
	text := r.GetOverallCode().String()
	for _, s := range r.GetStatuses() {
		text += " " + s.GetCode().String()
		if s.GetCurrentLimit() == nil {
			text += "(none)"
		}
	}
	return text
}

// What clients may put into requests, and so make of what Envoy asks, is answered, and what
// limits them does so.
func TestEnvoyBounds(t *testing.T) {
	long := strings.Repeat("x", 58<<10)
	many := func(n int, text string) []string {
		var texts []string
		for range n {
			texts = append(texts, text)
		}
		return texts
	}
	for name, tc := range map[string]struct {
		config Config
		domain string
		steps  []call
		excess string
	}{
		"a long value with a short one": {Config{}, "edge", []call{
			{2, []string{"remote=a path=/" + long}, "OK OK"},
			{2, []string{"remote=a path=/" + long + "2"}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"remote=a path=/" + long + "3"}, "OK OK"},
		}, "value"},
		"long values have counters of their own, and match": {Config{}, "edge", []call{
			{2, []string{"path=/page" + long}, "OK OK"},
			{1, []string{"path=/page" + long}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"path=/page" + long[:len(long)/2] + "y" + long}, "OK OK"},
			{1, []string{"remote=a path=/" + long + ".php"}, "OK OK"},
			{1, []string{"remote=a path=/" + long + ".php"}, "OVER_LIMIT OVER_LIMIT"},
		}, "value"},
		"six times a header": {Config{}, "tree", []call{
			{1, many(6, "user="+long), "OVER_LIMIT OK OK OK OVER_LIMIT OVER_LIMIT OVER_LIMIT"},
			{1, many(3, "user="+long), "OK OK OK OK"},
			{1, many(1, "user="+long), "OVER_LIMIT OVER_LIMIT"},
		}, ""},
		"a key twice": {Config{}, "edge", []call{
			{3, []string{"remote=a remote=b"}, "OK OK"},
			{1, []string{"remote=a"}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"remote=b"}, "OK OK"},
		}, "key"},
		"entries": {Config{}, "tree", []call{
			{9, []string{"user=a", strings.Repeat("user=a ", 17)}, "OVER_LIMIT OVER_LIMIT OK(none)"},
			{1, []string{"user=a", strings.Repeat("user=a ", 17)}, "OK OK OK(none)"},
		}, "entries"},
		"entries in a domain of rules, or with a limit": {Config{}, "edge", []call{
			{3, []string{"remote=a " + entriesOf(17)}, "OK OK"},
			{1, []string{"remote=a " + entriesOf(17)}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"override=1/2 " + entriesOf(17)}, "OK OK"},
			{1, []string{"override=1/2 " + entriesOf(17)}, "OVER_LIMIT OVER_LIMIT"},
		}, "entries"},
		"many descriptors": {Config{}, "tree", []call{
			{1, append(many(4095, "none=x"), "user=a"), "OK" + strings.Repeat(" OK(none)", 4095) + " OK"},
			{3, append(many(4095, "none=x"), "user=a"), "OVER_LIMIT" + strings.Repeat(" OK(none)", 4095) + " OVER_LIMIT"},
			{1, many(4096, "user=b"), "OVER_LIMIT" + strings.Repeat(" OK", 3) + strings.Repeat(" OVER_LIMIT", 4093)},
			{3, []string{"user=b"}, "OK OK"},
		}, ""},
		"descriptors": {Config{Metadata: true}, "tree", []call{
			{1, many(4097, "user=a"), "OVER_LIMIT" + strings.Repeat(" OVER_LIMIT(none)", 4097)},
			{3, []string{"user=a"}, "OK OK"}, // nothing of it was counted
		}, "descriptors"},
		"descriptors that count although they are denied": {Config{CountDenied: true}, "tree", []call{
			{1, append(many(4095, "user=b"), "user=a"), "OVER_LIMIT" + strings.Repeat(" OK", 3) + strings.Repeat(" OVER_LIMIT", 4092) + " OK"},
			{3, []string{"user=a"}, "OVER_LIMIT OVER_LIMIT"},
			{1, many(4097, "user=c"), "OVER_LIMIT" + strings.Repeat(" OVER_LIMIT(none)", 4097)},
		}, "descriptors"},
		"descriptors while nothing is denied": {Config{Shadow: true}, "tree", []call{
			{1, many(4097, "user=a"), "OK" + strings.Repeat(" OVER_LIMIT(none)", 4097)},
		}, "descriptors"},
		"hits": {Config{}, "tree", []call{
			{0, []string{"user=a hits=99999999999"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"user=a hits=18446744073709551615"}, "OVER_LIMIT OVER_LIMIT"},
			{4294967295, []string{"user=a", "most=a"}, "OVER_LIMIT OVER_LIMIT OVER_LIMIT"},
			{3, []string{"user=a"}, "OK OK"}, // nothing of it was counted
			{0, []string{"user=a hits=99999999999 negative"}, "OK OK"},
			{3, []string{"user=a"}, "OK OK"},
		}, "hits"},
		"hits that count although they are denied": {Config{CountDenied: true}, "tree", []call{
			{1, []string{"user=a", "user=b", "most=a"}, "OK OK OK OK"},
			{0, []string{"user=a hits=99999999999"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"user=b hits=2147483648"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"user=a hits=0"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"user=b hits=0"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"user=a hits=18446744073709551615"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"most=a hits=18446744073709551615"}, "OVER_LIMIT OVER_LIMIT"},
		}, "hits"},
		"hits in a domain of rules": {Config{}, "edge", []call{
			{0, []string{"remote=a hits=99999999999"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"heavy=a hits=99999999999"}, "OVER_LIMIT OVER_LIMIT"},
			{3, []string{"remote=a", "heavy=a"}, "OK OK OK"},
		}, "hits"},
		"costs": {Config{}, "edge", []call{
			{0, []string{"up=a size=many"}, "OVER_LIMIT OVER_LIMIT"},
			{0, []string{"up=a size=99999999999999999999999"}, "OVER_LIMIT OVER_LIMIT"},
			{2147483647, []string{"heavy=a"}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"up=a size=60"}, "OK OK"},
			{0, []string{"up=a size=x hits=5 negative"}, "OK OK"},
			{1, []string{"up=a size=41"}, "OVER_LIMIT OVER_LIMIT"},
		}, "cost"},
		"limits that requests bring": {Config{}, "tree", []call{
			{3, []string{"user=a override=1000/8"}, "OK OK"},
			{1, []string{"user=a override=1000/4*0"}, "OVER_LIMIT OVER_LIMIT"},
			{1, []string{"user=a override=1000/4*367"}, "OVER_LIMIT OVER_LIMIT"},
		}, "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newConfiguredFixture(t, boundRules, tc.config)
			client := rlsv3.NewRateLimitServiceClient(f.dial(t))
			for i, c := range tc.steps {
				resp, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: tc.domain, HitsAddend: c.hits, Descriptors: apitest.Descriptors(c.descriptors...)})
				if err != nil {
					t.Fatalf("step %d: %v", i, err)
				}
				if got := codesOf(resp); got != c.want {
					t.Errorf("step %d, %d hits of %.100q: %s, want %s", i, c.hits, c.descriptors, got, c.want)
				}
			}
			if tc.excess != "" && testutil.ToFloat64(f.stats.excesses.WithLabelValues(tc.excess)) == 0 {
				t.Errorf("%q is not counted", tc.excess)
			}
			for _, kind := range []string{invalidRequest, undecidedRequest} {
				if n := testutil.ToFloat64(f.stats.errors.WithLabelValues(kind)); n != 0 {
					t.Errorf("%v errors of the type %s", n, kind)
				}
			}
		})
	}
}

// All rules that match all descriptors limit a request; if they are more than one request may ask for, it is over its limit.
func TestEnvoyMatchesManyRules(t *testing.T) {
	text := "domain: edge\nrules:\n"
	for i := range 30 {
		text += fmt.Sprintf("  - {id: r%d, per: [user], limits: [{limit: 1, window: 1h}]}\n", i)
	}
	f := newFixture(t, text)
	client := rlsv3.NewRateLimitServiceClient(f.dial(t))
	for i, tc := range []struct {
		first, last int
		want        string
	}{
		{0, 49, "OK"}, {49, 49, "OVER_LIMIT"}, {50, 322, "OK"}, {322, 322, "OVER_LIMIT"},
		{323, 596, "OVER_LIMIT"}, // 8,220 limits
		{323, 323, "OK"},
	} {
		request := &rlsv3.RateLimitRequest{Domain: "edge"}
		for user := tc.first; user <= tc.last; user++ {
			request.Descriptors = append(request.Descriptors, apitest.Descriptors(fmt.Sprintf("user=%d", user))...)
		}
		resp, err := client.ShouldRateLimit(t.Context(), request)
		if err != nil || resp.GetOverallCode().String() != tc.want || len(resp.GetStatuses()) != len(request.GetDescriptors()) {
			t.Errorf("request %d: %v, %d statuses, %v, want %s", i, resp.GetOverallCode(), len(resp.GetStatuses()), err, tc.want)
		}
	}
	if n := testutil.ToFloat64(f.stats.excesses.WithLabelValues("limits")); n != 1 {
		t.Errorf("%v counted as too many limits", n)
	}
}

// Names of limits may have what clients choose.
func TestEnvoyNamesAreShort(t *testing.T) {
	f := newFixture(t, boundRules)
	override := &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 9, Unit: 2}
	for _, end := range []string{"1", "2"} {
		_, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "tree", Descriptors: []*commonv3.RateLimitDescriptor{
			{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: strings.Repeat("a", 58<<10) + end}}, Limit: override},
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := len(f.stats.byName); n != 1 {
		t.Errorf("%d names", n)
	}
	for name := range f.stats.byName {
		if len(name) != maxNameBytes {
			t.Errorf("a name of %d bytes", len(name))
		}
	}
}
