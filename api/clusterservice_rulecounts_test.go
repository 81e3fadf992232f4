package api

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// A node counts each limit of each check of a rule, over all APIs, and neither looks nor other rules.
func TestRuleCounts(t *testing.T) {
	f := newFixture(t, topRules)
	conn := f.dial(t)
	checks, nodes := weirv1.NewRateLimiterClient(conn), weirv1.NewClusterClient(conn)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // the first limit has room for two, the second one for three
		must(checks.CheckRateLimit(t.Context(), request("user=alice endpoint=/two")))
	}
	peek := request("user=carol endpoint=/trial tenant=t")
	peek.Peek = true
	trial := request("user=carol endpoint=/trial tenant=t")
	must(checks.CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{trial, peek, trial, trial}}))
	for _, want := range []struct {
		rule                       string
		allowed, denied, wouldDeny uint64
		perCheck                   uint32
	}{
		{"two", 5, 1, 0, 2}, {"trial", 1, 0, 2, 1}, {"both", 0, 0, 0, 2}, {"all", 0, 0, 0, 1},
	} {
		got, err := nodes.GetRuleCounts(t.Context(), &weirv1.GetRuleCountsRequest{RuleId: want.rule})
		if err != nil {
			t.Fatal(err)
		}
		self := f.status.Self()
		if !proto.Equal(got, &weirv1.GetRuleCountsResponse{
			NodeId: self.ID, Incarnation: self.Incarnation,
			Allowed: want.allowed, Denied: want.denied, WouldDeny: want.wouldDeny, LimitsPerCheck: want.perCheck,
		}) {
			t.Errorf("%s: %v, want %+v", want.rule, got, want)
		}
	}
}

// Checks that no node decides are counted as such.
func TestRuleCountsOfUndecidedChecks(t *testing.T) {
	f := newFixture(t, topRules)
	f.silent = func(shard.Take) bool { return true }
	f.check(t, "user=alice endpoint=/all")
	got, err := weirv1.NewClusterClient(f.dial(t)).GetRuleCounts(t.Context(), &weirv1.GetRuleCountsRequest{RuleId: "all"})
	if err != nil || got.GetUndecided() != 1 || got.GetAllowed() != 0 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestRuleCountsErrors(t *testing.T) {
	nodes := weirv1.NewClusterClient(newFixture(t, topRules).dial(t))
	for _, tc := range []struct {
		req  *weirv1.GetRuleCountsRequest
		code codes.Code
		want string
	}{
		{&weirv1.GetRuleCountsRequest{}, codes.InvalidArgument, "rule_id: must not be empty"},
		{&weirv1.GetRuleCountsRequest{RuleId: "all", Domain: strings.Repeat("d", 65)}, codes.InvalidArgument, "domain: 65 bytes are more than 64"},
		{&weirv1.GetRuleCountsRequest{RuleId: "none"}, codes.NotFound, `rule_id: domain "default" has no rule "none"`},
		{&weirv1.GetRuleCountsRequest{RuleId: "all", Domain: "shop"}, codes.NotFound, `rule_id: domain "shop" has no rule "all"`},
	} {
		_, err := nodes.GetRuleCounts(t.Context(), tc.req)
		if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v: %v, want %s", tc.req, err, tc.want)
		}
	}
}
