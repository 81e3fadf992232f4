package envoy

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/shard"
)

const envoyRules = `
domain: edge
rules:
  - {id: second, when: {unit: s}, limits: [{limit: 5, window: 1s}]}
  - {id: minute, when: {unit: m}, limits: [{limit: 5, window: 60s}]}
  - {id: hour, when: {unit: h}, limits: [{limit: 5, window: 1h}]}
  - {id: day, when: {unit: d}, limits: [{limit: 5, window: 24h}]}
  - {id: week, when: {unit: w}, limits: [{limit: 5, window: 7d}]}
  - {id: month, when: {unit: mo}, limits: [{limit: 5, window: 30d}]}
  - {id: year, when: {unit: y}, limits: [{limit: 5, window: 365d}]}
  - {id: odd, when: {unit: odd}, limits: [{limit: 5, window: 90s}]}
  - {id: user, per: [user], limits: [{limit: 3, window: 1m}]}
  - {id: path, per: [path], limits: [{limit: 6, window: 1m}, {limit: 4, window: 1s}]}
  - {id: top, when: {unit: top}, limits: [{limit: 2147483648, window: 1s}]}
`

// call is one request to Envoy's service; its want is that of briefEnvoy.
type call struct {
	hits        uint32
	descriptors []string
	want        string
}

func (f *fixture) play(t *testing.T, calls []call) {
	client := rlsv3.NewRateLimitServiceClient(f.dial(t))
	for i, c := range calls {
		resp, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "edge", Descriptors: apitest.Descriptors(c.descriptors...), HitsAddend: c.hits,
		})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if len(resp.GetRequestHeadersToAdd())+len(resp.GetRawBody()) > 0 || resp.GetDynamicMetadata() != nil {
			t.Errorf("call %d: more than statuses: %v", i, resp)
		}
		if got := apitest.BriefEnvoy(resp); got != c.want {
			t.Errorf("call %d, %d hits of %q\ngot  %s\nwant %s", i, c.hits, c.descriptors, got, c.want)
		}
	}
}

func TestShouldRateLimit(t *testing.T) {
	for name, calls := range map[string][]call{
		"units": {
			{0, []string{"unit=s", "unit=m"}, "OK | OK second 5/SECOND left 4 reset 1.000000001s | OK minute 5/MINUTE left 4 reset 1m0.000000001s"},
			{0, []string{"unit=h", "unit=d"}, "OK | OK hour 5/HOUR left 4 reset 1h0m0.000000001s | OK day 5/DAY left 4 reset 24h0m0.000000001s"},
			{0, []string{"unit=w", "unit=mo"}, "OK | OK week 5/WEEK left 4 reset 120h0m0.000000001s | OK month 5/MONTH left 4 reset 552h0m0.000000001s"},
			{0, []string{"unit=y", "unit=odd"}, "OK | OK year 5/YEAR left 4 reset 8592h0m0.000000001s | OK odd 5/SECOND*90 left 4 reset 1m30.000000001s"},
			{1 << 31, []string{"unit=top"}, "OK | OK top 2147483648/SECOND left 0 reset 2s"},
		},
		"hits": {
			{0, []string{"user=a"}, "OK | OK user 3/MINUTE left 2 reset 1m0.000000001s"},
			{1, []string{"user=a"}, "OK | OK user 3/MINUTE left 1 reset 1m30.000000001s"},
			{2, []string{"user=a"}, "OVER_LIMIT | OVER_LIMIT user 3/MINUTE left 0 reset 1m30.000000001s"},
			{0, []string{"user=a hits=0"}, "OK | OK user 3/MINUTE left 1 reset 1m30.000000001s"},
			{7, []string{"user=a hits=0", "path=/p hits=3", "path=/q"}, "OVER_LIMIT | OK user 3/MINUTE left 1 reset 1m30.000000001s | OK path 4/SECOND left 4 reset 0s | OVER_LIMIT path 4/SECOND left 0 reset 0s"},
			{3, []string{"user=a hits=1", "path=/p"}, "OK | OK user 3/MINUTE left 0 reset 1m40.000000001s | OK path 4/SECOND left 1 reset 1.666666667s"},
			{0, []string{"user=a hits=0"}, "OK | OK user 3/MINUTE left 0 reset 1m40.000000001s"},
		},
		"all or nothing": {
			{3, []string{"user=a"}, "OK | OK user 3/MINUTE left 0 reset 1m40.000000001s"},
			{0, []string{"path=/p hits=2", "user=a", "none=x", "path=/q"}, "OVER_LIMIT | OK path 4/SECOND left 4 reset 0s | OVER_LIMIT user 3/MINUTE left 0 reset 1m40.000000001s | OK | OK path 4/SECOND left 4 reset 0s"},
			{0, []string{"path=/p hits=0", "path=/q hits=0"}, "OK | OK path 4/SECOND left 4 reset 0s | OK path 4/SECOND left 4 reset 0s"},
			{0, []string{"user=b hits=2", "user=b hits=2"}, "OVER_LIMIT | OK user 3/MINUTE left 3 reset 0s | OVER_LIMIT user 3/MINUTE left 0 reset 1m30.000000001s"},
			{0, []string{"user=b hits=2", "user=b hits=1"}, "OK | OK user 3/MINUTE left 1 reset 1m30.000000001s | OK user 3/MINUTE left 0 reset 1m40.000000001s"},
		},
		"no rule": {
			{0, []string{"none=x", ""}, "OK | OK | OK"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newFixture(t, envoyRules).play(t, calls) })
		})
	}
}

const turnRules = `
domain: edge
rules:
  - {id: queue, when: {endpoint: /queue}, limits: [{limit: 10, window: 1s, burst: 10, algorithm: leaky_bucket}]}
  - {id: ahead, when: {endpoint: /ahead}, max_delay: 10s, limits: [{limit: 10, window: 1s, burst: 1, algorithm: token_bucket}]}
  - {id: seen, when: {endpoint: [/queue, /ahead]}, enforce: 0, limits: [{limit: 5, window: 1s, burst: 100, algorithm: leaky_bucket}]}
`

// Envoy does not wait: whose turn comes later is over the limit, and has no turn.
func TestEnvoyHasNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, turnRules)
		for _, path := range []string{"/queue", "/ahead"} {
			for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT, rlsv3.RateLimitResponse_OK} {
				if i == 2 {
					<-time.After(100 * time.Millisecond)
				}
				resp, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors("endpoint=" + path)})
				if err != nil || resp.GetOverallCode() != want {
					t.Errorf("%s, request %d: %v, %v", path, i, resp, err)
				}
			}
		}
	})
}

func TestEnvoyFailOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, envoyRules)
		f.Silent = func(take shard.Take) bool { return take.Limit.Window == int64(time.Second) }
		f.play(t, []call{
			{0, []string{"unit=s"}, "OK | OK"},
			{0, []string{"path=/p", "user=a"}, "OK | OK | OK user 3/MINUTE left 2 reset 1m0.000000001s"},
			{5, []string{"path=/p"}, "OK | OK"},
			{9, []string{"unit=s", "path=/p", "user=a"}, "OVER_LIMIT | OK | OVER_LIMIT path 6/MINUTE left 0 reset 1m50.000000001s | OVER_LIMIT user 3/MINUTE left 0 reset 1m0.000000001s"},
		})
	})
}

func TestEnvoyRefuses(t *testing.T) {
	f := newFixture(t, "domain: edge\nrules:\n- {id: all, limits: [{limit: 5000, window: 1h}]}\n")
	client := rlsv3.NewRateLimitServiceClient(f.dial(t))
	many := func(n int, each string) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = strings.ReplaceAll(each, "#", string(rune('a'+i)))
		}
		return all
	}
	const good = "user=alice"
	for want, req := range map[string]*rlsv3.RateLimitRequest{
		`domain: must not be empty`:      {Descriptors: apitest.Descriptors(good)},
		`descriptors: must not be empty`: {Domain: "edge"},
	} {
		_, err := client.ShouldRateLimit(t.Context(), proto.CloneOf(req))
		refused(t, err, want)
	}
	if f.Shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
	for _, texts := range [][]string{
		many(100, good),
		{strings.Join(many(16, "#"+strings.Repeat("k", 63)+"="+strings.Repeat("v", 256)), " ")},
		{"a="},
		{""}, {"a=x =y"}, {strings.Repeat("k", 65) + "=x"},
	} {
		if _, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors(texts...)}); err != nil {
			t.Errorf("%.40s: %v", texts[0], err)
		}
	}
}

const negativeRules = `
domain: default
rules:
  - {id: vip, when: {user: boss}, unlimited: true}
  - {id: plain, when: {endpoint: /plain}, per: [user], limits: [{limit: 5, window: 1m, algorithm: fixed_window}]}
  - {id: monthly, when: {endpoint: /bill}, limits: [{limit: 3, window: {calendar: month, timezone: Europe/Paris}, algorithm: fixed_window}]}
`

// Envoy gives hits back when a request has turned out cheaper.
func TestEnvoyNegativeHits(t *testing.T) {
	f := newFixture(t, negativeRules)
	call := func(descriptor string) *rlsv3.RateLimitResponse_DescriptorStatus {
		t.Helper()
		resp, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "default", Descriptors: apitest.Descriptors(descriptor),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetStatuses()[0]
	}
	for _, s := range []struct {
		descriptor string
		code       rlsv3.RateLimitResponse_Code
		remaining  uint32
	}{
		{"user=a endpoint=/plain hits=5", rlsv3.RateLimitResponse_OK, 0},
		{"user=a endpoint=/plain hits=1", rlsv3.RateLimitResponse_OVER_LIMIT, 0},
		{"user=a endpoint=/plain hits=3 negative", rlsv3.RateLimitResponse_OK, 3},
		{"user=a endpoint=/plain hits=9 negative", rlsv3.RateLimitResponse_OK, 5},
		{"user=boss endpoint=/plain hits=9", rlsv3.RateLimitResponse_OK, 1<<32 - 1},
	} {
		if st := call(s.descriptor); st.GetCode() != s.code || st.GetLimitRemaining() != s.remaining {
			t.Errorf("%s: %v", s.descriptor, st)
		}
	}
	if unit := call("endpoint=/bill hits=1").GetCurrentLimit().GetUnit(); unit != rlsv3.RateLimitResponse_RateLimit_MONTH {
		t.Errorf("unit %v", unit)
	}
}
