package api

import (
	"testing"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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

// The other APIs would look at nothing of it.
func TestDescriptorsAreEnvoysOnly(t *testing.T) {
	f := newFixture(t, "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	const want = `domain: "edge" has descriptors, which only Envoy's API reads; ask with ShouldRateLimit, POST /json, or weir check --descriptor`
	_, err := f.server().CheckRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
	_, err = f.server().ExplainRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
}
