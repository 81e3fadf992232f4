package api

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Descriptors are listed like rules, with domains of any name, and change together.
func TestDescriptorsInTheStore(t *testing.T) {
	f := newFixture(t, "{domain: d, rules: []}")
	withStore(t, f)
	c := f.config
	apply := func(text string, prune bool) error {
		_, err := c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: text, Prune: prune})
		return err
	}
	const limit = "rate_limit: {unit: day, requests_per_unit: 1}"
	text := "domain: a/b\ndescriptors: [{key: x/y, " + limit + "}, {key: z, " + limit + "}]\n---\ndomain: shop\nrules: [{id: r, limits: [{limit: 1, window: 1s}]}]\n"
	if err := apply(text, false); err != nil {
		t.Fatal(err)
	}
	var names []string
	for req := (&weirv1.ListRateLimitsRequest{PageSize: 1}); len(names) < 9; {
		resp, err := c.ListRateLimits(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.GetRateLimits() {
			names = append(names, fmt.Sprintf("%s %s %t", r.GetDomain(), r.GetId(), r.GetRule().GetDescriptorYaml() != ""))
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	if got := strings.Join(names, ", "); got != "a/b x/y true, a/b z true, shop r false" {
		t.Error(got)
	}
	for name, err := range map[string]error{
		"delete": func() error {
			_, err := c.DeleteRateLimit(t.Context(), &weirv1.DeleteRateLimitRequest{Domain: "a/b", Id: "z"})
			return err
		}(),
		"update": func() error {
			_, err := c.UpdateRateLimit(t.Context(), &weirv1.UpdateRateLimitRequest{RateLimit: &weirv1.RateLimit{Domain: "a/b", Id: "z", Limit: new(uint32), WindowSeconds: 1}})
			return err
		}(),
	} {
		want := `the descriptors of a domain change together: apply their file, with weir rules apply: domain "a/b"`
		if st := status.Convert(err); st.Code() != codes.FailedPrecondition || st.Message() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := apply("domain: shop\ndescriptors: [{key: k}]\n", false); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), `domain "shop" has both rules and descriptors`) {
		t.Errorf("with rules: %v", err)
	}
	if err := apply("domain: shop\ndescriptors: [{key: k}]\n", true); err != nil {
		t.Errorf("instead of rules: %v", err)
	}
	if err := apply("domain: a/b\ndescriptors: [{key: z, "+limit+"}]\n", false); err != nil {
		t.Errorf("fewer of them: %v", err)
	}
	files, err := c.store.State().Set.DescriptorFiles("")
	if want := "domain: a/b\ndescriptors:\n  - key: z\n    rate_limit:\n      unit: day\n      requests_per_unit: 1\ndomain: shop\ndescriptors:\n  - key: k\n"; err != nil || strings.Join(files, "") != want {
		t.Errorf("%q, %v", files, err)
	}
}

// A watch gets the files of all descriptors with every state, in messages of bounded size.
func TestWatchedDescriptors(t *testing.T) {
	var text strings.Builder
	for domain := range 4 {
		fmt.Fprintf(&text, "---\ndomain: d%d\ndescriptors:\n", domain)
		for i := range 500 {
			fmt.Fprintf(&text, "- {key: k, value: %q, rate_limit: {unit: day, requests_per_unit: 1}}\n", fmt.Sprint(i, strings.Repeat("v", 1000)))
		}
	}
	f := newFixture(t, strings.TrimPrefix(text.String(), "---\n"))
	for domain, want := range map[string]int{"": 4, "d2": 1, "x": 0} {
		var files []string
		messages := 0
		err := sendState(func(m *weirv1.WatchRulesResponse) error {
			messages++
			files = append(files, m.GetDescriptorFiles()...)
			if size := proto.Size(m); size > 2*maxPageBytes {
				t.Errorf("a message of %d bytes", size)
			}
			return nil
		}, domain, &rules.State{Set: new(rules.Set)}, f.config.store.State())
		if err != nil || len(files) != want || want == 4 && messages < 3 {
			t.Errorf("domain %q: %d files in %d messages, %v; want %d", domain, len(files), messages, err, want)
		}
	}
}
