package api

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func TestExplain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, statusRules)
		f.check(t, "user=alice endpoint=/posts cost=9")
		for range 2 { // the second sees that the first has counted nothing
			resp, err := f.server().ExplainRateLimit(t.Context(), request("user=alice endpoint=/posts cost=2"))
			if err != nil {
				t.Fatal(err)
			}
			if d := resp.GetDecision(); d.GetAllowed() || d.GetRuleId() != "posts" || d.GetRetryAfterSeconds() != 60 {
				t.Errorf("%v", d)
			}
			var b strings.Builder
			for _, r := range resp.GetRules() {
				fmt.Fprintf(&b, "%s %t %s\n%s", r.GetRuleId(), r.GetApplies(), r.GetReason(), lines(r.GetLimits()))
			}
			expectLines(t, "explained", b.String(), `
posts true 
posts 10/1m0s here left 1 denied for 1m0s
posts 100/1h0m0s here left 91
likes false endpoint is "/posts", not "/likes"
pair false the request has no attribute tenant
all true 
all 50/1m0s here left 41
staff false user is "alice", not "root"
off false is disabled
`)
		}
		for range 2 { // also what it would allow
			resp, err := f.server().ExplainRateLimit(t.Context(), request("user=bob endpoint=/likes cost=3"))
			if err != nil || !resp.GetDecision().GetAllowed() {
				t.Errorf("%v, %v", resp.GetDecision(), err)
			}
		}
		_, err := f.server().ExplainRateLimit(t.Context(), request("user="))
		refused(t, err, "identifier: must not be empty")
	})
}

// A person's look at descriptors tells what is wrong with it, and counts nothing.
func TestExplainDescriptorsRefuses(t *testing.T) {
	f := newFixture(t, "domain: edge\ndescriptors: [{key: a, rate_limit: {unit: year, requests_per_unit: 1}}]\n---\ndomain: d\nrules: []\n")
	entry := func(key string) *weirv1.Descriptor {
		return &weirv1.Descriptor{Entries: []*weirv1.DescriptorEntry{{Key: key, Value: "v"}}}
	}
	many := make([]*weirv1.Descriptor, 101)
	long := &weirv1.Descriptor{}
	for range maxAttributes + 1 {
		long.Entries = append(long.Entries, entry("a").GetEntries()...)
	}
	for _, c := range []struct {
		req  *weirv1.DescriptorsRequest
		want string
	}{
		{&weirv1.DescriptorsRequest{Domain: "d", Descriptors: []*weirv1.Descriptor{entry("a")}}, `domain: "d" has no descriptors; ask with an identifier and attributes`},
		{&weirv1.DescriptorsRequest{Domain: "edge"}, "descriptors: must not be empty"},
		{&weirv1.DescriptorsRequest{Domain: "edge", Descriptors: many}, "descriptors: 101 items are more than 100"},
		{&weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("a"), {}}}, "descriptors[1].entries: must not be empty"},
		{&weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{long}}, "descriptors[0].entries: 17 items are more than 16"},
		{&weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("")}}, "descriptors[0].entries[0].key: must not be empty"},
		{&weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("a")}, Hits: -1}, "hits: -1 is not between 0 and 2147483648"},
	} {
		_, err := f.server().ExplainDescriptors(t.Context(), c.req)
		refused(t, err, c.want)
		if c.req.GetHits() == 0 {
			_, err = healthServer{limiter: f.Limiter}.ResetDescriptors(t.Context(), c.req)
			refused(t, err, c.want)
		}
	}
	_, err := healthServer{limiter: f.Limiter}.ResetDescriptors(t.Context(), &weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("a")}, Hits: 1})
	refused(t, err, "hits: 1 is not 0: a reset costs nothing")
	for range 3 {
		resp, err := f.server().ExplainDescriptors(t.Context(), &weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("a")}})
		if err != nil || !resp.GetAllowed() || resp.GetDescriptors()[0].GetLimit().GetRemainingTokens() != 1 {
			t.Errorf("%v, %v", resp, err)
		}
	}
	f.silent = func(shard.Take) bool { return true }
	resp, err := f.server().ExplainDescriptors(t.Context(), &weirv1.DescriptorsRequest{Domain: "edge", Descriptors: []*weirv1.Descriptor{entry("a")}})
	if err != nil || resp.GetDescriptors()[0].GetLimit().GetResetAfter() != nil {
		t.Errorf("a silent owner: %v, %v", resp, err)
	}
}
