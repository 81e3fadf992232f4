package envoy

import (
	"encoding/json"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/apitest"
)

func TestDynamicMetadata(t *testing.T) {
	f := newConfiguredFixture(t, `
domain: edge
descriptors:
  - {key: a, metadata: {name: first, deep: {x: 1, y: {z: [true]}}}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: b, metadata: {name: second, deep: {x: 2, w: 3}, own: null}, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: c}]}}
  - {key: c, metadata: {replaced: 1}, rate_limit: {name: c, unit: minute, requests_per_unit: 9}}
  - {key: free, metadata: {free: 1}, rate_limit: {unlimited: true}}
`, Config{Metadata: true})
	for i, tc := range []struct {
		hits        uint32
		descriptors []string
		want        string
	}{
		{0, []string{"a=1", "b=2 x="}, `{"domain":"edge","descriptors":[{"entries":["a=1"]},{"entries":["b=2","x="]}],"metadata":{"name":"first","deep":{"x":1,"y":{"z":[true]}}}}`},
		{3, []string{"b=1 hits=0", "c=1", "free=", "a=2 override=9/2*3"}, `{"domain":"edge","hitsAddend":3,"descriptors":[{"entries":["b=1"],"hitsAddend":0},{"entries":["c=1"]},{"entries":["free="]},` +
			`{"entries":["a=2"],"limit":"requests_per_unit:9 unit:MINUTE unit_multiplier:3"}],"metadata":{"name":"second","deep":{"x":2,"w":3},"own":null}}`},
		{0, []string{"a=1", "b=1"}, `{"domain":"edge","descriptors":[{"entries":["a=1"]},{"entries":["b=1"]}],"metadata":{"name":"second","deep":{"x":2,"w":3},"own":null}}`},
		{0, []string{"b=1", "a=3"}, `{"domain":"edge","descriptors":[{"entries":["b=1"]},{"entries":["a=3"]}],"metadata":{"name":"second","deep":{"x":2,"w":3,"y":{"z":[true]}},"own":null}}`},
		{0, []string{"b=1"}, `{"domain":"edge","descriptors":[{"entries":["b=1"]}],"metadata":{"name":"second","deep":{"x":2,"w":3},"own":null}}`},
		{0, []string{"none=1"}, `{"domain":"edge","descriptors":[{"entries":["none=1"]}]}`},
		{0, []string{"none=1 override=0/4"}, `{"domain":"edge","descriptors":[{"entries":["none=1"],"limit":"unit:DAY"}]}`},
	} {
		resp, err := f.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: apitest.Descriptors(tc.descriptors...), HitsAddend: tc.hits})
		if err != nil {
			t.Fatal(err)
		}
		var want map[string]any
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		got, gotErr := json.Marshal(resp.GetDynamicMetadata().AsMap())
		text, wantErr := json.Marshal(want)
		if gotErr != nil || wantErr != nil || string(got) != string(text) {
			t.Errorf("call %d: %v %v\ngot  %s\nwant %s", i, gotErr, wantErr, got, text)
		}
	}
	answer, err := f.check(t.Context(), wire.NewPart(append([]byte("\x0a\x04edge"), appendRawDescriptor("a", "\xff")...)))
	if err != nil || !strings.Contains(string(answer.ReadOnlyData()), "a=\uFFFD") {
		t.Errorf("%v", err)
	}
}
