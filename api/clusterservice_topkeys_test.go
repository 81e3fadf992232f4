package api

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/topkeys"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// top returns a list of the fixture over the last minute: rule, attributes and count of each key.
func (f *fixture) top(t testing.TB, by string) string {
	t.Helper()
	lists := func(q topkeys.Query) *cluster.TopLists {
		return &cluster.TopLists{Lists: []*topkeys.List{f.checks.Top.List(q)}, Nodes: []string{"here"}}
	}
	q, err := topQuery(&weirv1.ListTopKeysRequest{By: by})
	if err != nil {
		t.Fatal(err)
	}
	f.status.Lists = lists(q)
	resp, err := clusterServer{status: f.status}.ListTopKeys(t.Context(), &weirv1.ListTopKeysRequest{By: by, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if f.status.Asked != q || resp.GetSeconds() > 70 || len(resp.GetNodes()) != 1 {
		t.Errorf("asked for %+v, got %v", f.status.Asked, resp)
	}
	var b strings.Builder
	for _, k := range resp.GetKeys() {
		if k.GetUncounted() != 0 || k.GetStandardError() != 0 {
			t.Errorf("%v is not exact", k)
		}
		fmt.Fprintf(&b, "%s", k.GetRuleId())
		for _, e := range k.GetEntries() {
			fmt.Fprintf(&b, " %s=%s", e.GetKey(), e.GetValue())
		}
		fmt.Fprintf(&b, ": %d\n", k.GetCount())
	}
	return b.String()
}

const topRules = `
domain: default
rules:
  - {id: two, when: {endpoint: /two}, per: [user], limits: [{limit: 2, window: 1h}, {limit: 3, window: 2h}]}
  - {id: both, when: {endpoint: /both}, per: [[user], [endpoint]], limits: [{limit: 1, window: 1h}]}
  - {id: trial, when: {endpoint: /trial}, per: [user, tenant], limits: [{limit: 1, window: 1h}], enforce: 0}
  - {id: net, per: [ip], limits: [{limit: 100, window: 1h}]}
  - {id: all, when: {endpoint: /all}, limits: [{limit: 100, window: 1h}]}
`

// Every API counts each check once per rule and key, with what the rule counts by. Looks, and tokens that are given back, are
// no checks.
func TestEveryAPIIsInTheTopKeys(t *testing.T) {
	f := newFixture(t, topRules)
	conn := f.dial(t)
	ctx := t.Context()
	checks := weirv1.NewRateLimiterClient(conn)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	two := request("user=alice endpoint=/two")
	for range 3 { // the third one is denied by the first limit, not by the second
		must(checks.CheckRateLimit(ctx, two))
	}
	peek := request("user=alice endpoint=/two")
	peek.Peek = true
	must(checks.CheckRateLimit(ctx, peek))
	must(checks.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		peek, request("user=bob endpoint=/two"), request("user=alice endpoint=/none"), two, request("user=carol endpoint=/trial tenant=t"), request("user=carol endpoint=/trial tenant=t"),
	}}))
	stream, err := checks.StreamRateLimits(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must(nil, stream.Send(&weirv1.StreamRateLimitsRequest{Id: 1, Requests: []*weirv1.RateLimitRequest{
		request("user=dave endpoint=/both"), request("user=bob endpoint=/two"), request("user=dave endpoint=/both"),
	}}))
	must(stream.Recv())
	must(rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: apitest.Descriptors("ip=[2001:db8::1]:443", "ip=192.0.2.7:80", "ip=2001:db8::2", "endpoint=/all"),
	}))
	must(checks.CheckRateLimit(ctx, request("ip=192.0.2.7 endpoint=/all")))
	back := request("user=bob endpoint=/two")
	back.TokensRequested = -1
	must(checks.CheckRateLimit(ctx, back))
	for by, want := range map[string]string{
		"checks": `two user=alice: 4
two user=bob: 2
both user=dave: 2
both endpoint=/both: 2
trial tenant=t user=carol: 2
net ip=2001:db8::/64: 2
net ip=192.0.2.7: 2
all: 2
`,
		"denied":     "two user=alice: 2\nboth user=dave: 1\nboth endpoint=/both: 1\n",
		"would_deny": "trial tenant=t user=carol: 1\n",
	} {
		if got := f.top(t, by); !sameLines(got, want) {
			t.Errorf("%s:\n%s\nwant\n%s", by, got, want)
		}
	}
	if got := f.checks.Top.List(topkeys.Query{Order: topkeys.WouldDeny, Domain: "default", Rule: "two"}); len(got.Keys) > 0 {
		t.Errorf("another rule's keys: %+v", got.Keys)
	}
}

// sameLines compares regardless of the order of equal counts.
func sameLines(a, b string) bool {
	count := make(map[string]int)
	for line := range strings.Lines(a) {
		count[line]++
	}
	for line := range strings.Lines(b) {
		count[line]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// A large batch in which few checks are drawn counts as many as there were, about: each with the text of its own request.
func TestLargeBatchesAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, "domain: default\nrules:\n  - {id: r, per: [user], limits: [{limit: 1000000, window: 1h}]}\n")
		batch := &weirv1.RateLimitBatchRequest{}
		for i := range 1000 {
			batch.Requests = append(batch.Requests, request(fmt.Sprintf("user=u%d", i%4)))
		}
		const calls = 300
		for range calls {
			if _, err := f.server().CheckRateLimitBatch(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // as many are drawn as in 3 s then: the standard error is 8 %
		}
		l := f.checks.Top.List(topkeys.Query{})
		seen := make(map[string]bool)
		for _, k := range l.Keys {
			seen[topkeys.Attributes(k.Text)[0].Value] = true
			t.Logf("%q: %d checks, standard error %.0f", k.Text, k.Least, math.Sqrt(k.Variance))
			if n := float64(k.Least); n < calls*250*0.6 || n > calls*250*1.4 {
				t.Errorf("%q: %d checks, want about %d", k.Text, k.Least, calls*250)
			}
		}
		if len(l.Keys) != 4 || len(seen) != 4 || l.Keys[0].Variance == 0 {
			t.Errorf("%+v", l.Keys)
		}
	})
}

func TestListTopKeysErrors(t *testing.T) {
	f := newFixture(t, topRules)
	for _, tc := range []struct {
		req  *weirv1.ListTopKeysRequest
		code codes.Code
		want string
	}{
		{&weirv1.ListTopKeysRequest{By: "allowed"}, codes.InvalidArgument, `by: "allowed" is not one of checks, denied, would_deny`},
		{&weirv1.ListTopKeysRequest{Window: "1d"}, codes.InvalidArgument, `window: "1d" is not one of 1m, 1h`},
		{&weirv1.ListTopKeysRequest{Limit: 201}, codes.InvalidArgument, "limit: 201 is more than 200"},
		{&weirv1.ListTopKeysRequest{Domain: strings.Repeat("d", 65)}, codes.InvalidArgument, "domain: "},
		{&weirv1.ListTopKeysRequest{RuleId: "none"}, codes.NotFound, `rule_id: domain "default" has no rule "none"`},
		{&weirv1.ListTopKeysRequest{}, codes.FailedPrecondition, "keeps no lists of keys"}, // the fixture's status has none
	} {
		_, err := clusterServer{status: f.status}.ListTopKeys(t.Context(), tc.req)
		if status.Code(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%v: %v", tc.req, err)
		}
	}
}
