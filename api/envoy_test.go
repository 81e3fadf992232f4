package api

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir/shard"
)

// descriptors reads each text's entries as key=value, and beside them hits=N,
// override=REQUESTS/UNIT*MULTIPLE and negative.
func descriptors(texts ...string) []*commonv3.RateLimitDescriptor {
	ds := make([]*commonv3.RateLimitDescriptor, len(texts))
	for i, text := range texts {
		d := &commonv3.RateLimitDescriptor{}
		for field := range strings.FieldsSeq(text) {
			key, value, entry := strings.Cut(field, "=")
			switch {
			case key == "hits":
				n, _ := strconv.ParseUint(value, 10, 64)
				d.HitsAddend = wrapperspb.UInt64(n)
			case key == "override":
				var requests, unit, multiple uint32
				n, _ := fmt.Sscanf(value, "%d/%d*%d", &requests, &unit, &multiple)
				d.Limit = &commonv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: requests, Unit: typev3.RateLimitUnit(unit)}
				if n == 3 {
					d.Limit.UnitMultiplier = wrapperspb.UInt32(multiple)
				}
			case field == "negative":
				d.IsNegativeHits = true
			case entry:
				d.Entries = append(d.Entries, &commonv3.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		ds[i] = d
	}
	return ds
}

// briefEnvoy tells the overall code and the headers, and after each bar every field of a status.
func briefEnvoy(r *rlsv3.RateLimitResponse) string {
	text := r.GetOverallCode().String()
	for _, h := range r.GetResponseHeadersToAdd() {
		text += fmt.Sprintf(" %s=%s", h.GetKey(), h.GetValue())
	}
	for _, st := range r.GetStatuses() {
		text += " | " + st.GetCode().String()
		if l := st.GetCurrentLimit(); l != nil {
			text += fmt.Sprintf(" %s %d/%v", l.GetName(), l.GetRequestsPerUnit(), l.GetUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				text += fmt.Sprintf("*%d", m.GetValue())
			}
		}
		if st.GetLimitRemaining() != 0 || st.GetDurationUntilReset() != nil {
			text += fmt.Sprintf(" left %d reset %v", st.GetLimitRemaining(), st.GetDurationUntilReset().AsDuration())
		}
	}
	return text
}

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

func (f *fixture) playEnvoy(t *testing.T, calls []call) {
	client := rlsv3.NewRateLimitServiceClient(f.dial(t))
	for i, c := range calls {
		resp, err := client.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
			Domain: "edge", Descriptors: descriptors(c.descriptors...), HitsAddend: c.hits,
		})
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		if len(resp.GetRequestHeadersToAdd())+len(resp.GetRawBody()) > 0 || resp.GetDynamicMetadata() != nil {
			t.Errorf("call %d: more than statuses: %v", i, resp)
		}
		if got := briefEnvoy(resp); got != c.want {
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
			synctest.Test(t, func(t *testing.T) { newFixture(t, envoyRules).playEnvoy(t, calls) })
		})
	}
}

// Envoy does not wait: whose turn comes later is over the limit, and has no turn.
func TestEnvoyHasNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, strings.ReplaceAll(turnRules, "default", "edge"))
		for _, path := range []string{"/queue", "/ahead"} {
			for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT, rlsv3.RateLimitResponse_OK} {
				if i == 2 {
					<-time.After(100 * time.Millisecond)
				}
				resp, err := envoyServer{Limiter: f.Limiter}.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: descriptors("endpoint=" + path)})
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
		f.silent = func(take shard.Take) bool { return take.Limit.Window == int64(time.Second) }
		f.playEnvoy(t, []call{
			{0, []string{"unit=s"}, "OK | OK"},
			{0, []string{"path=/p", "user=a"}, "OK | OK | OK user 3/MINUTE left 2 reset 1m0.000000001s"},
			{5, []string{"path=/p"}, "OK | OK"},
			{9, []string{"unit=s", "path=/p", "user=a"}, "OVER_LIMIT | OK | OVER_LIMIT path 6/MINUTE left 0 reset 1m50.000000001s | OVER_LIMIT user 3/MINUTE left 0 reset 1m0.000000001s"},
		})
	})
}
