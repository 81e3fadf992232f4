package api

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/rules"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// withStore gives f a store in the place of its rules.
func withStore(t *testing.T, f *fixture) *inmemory.Rules {
	t.Helper()
	m := &inmemory.Rules{}
	store, err := rules.OpenStore(t.Context(), rules.StoreConfig{
		Backend: m, Name: "test", MaxSize: 1 << 20, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Subscribe(store.Update)
	f.config = NewConfigServer(store)
	store.OnChange(func(*rules.Set) { f.config.Changed() })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- store.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// newConfig serves a store without rules over gRPC.
func newConfig(t *testing.T) (*fixture, *inmemory.Rules, weirv1.RateLimiterConfigClient) {
	t.Helper()
	f := newFixture(t, "domain: d\nrules: []\n")
	m := withStore(t, f)
	return f, m, weirv1.NewRateLimiterConfigClient(f.dial(t))
}

func simple(id string, limit uint32) *weirv1.RateLimit {
	return &weirv1.RateLimit{Domain: "d", Id: id, Limit: &limit, WindowSeconds: 60}
}

// briefLimit tells every field of the simple form and how many limits the full one
// has.
func briefLimit(r *weirv1.RateLimit) string {
	form := "not simple"
	if r.Limit != nil {
		form = fmt.Sprintf("%q %q %d/%ds %s %t", r.GetEndpoint(), r.GetIdentifierType(), r.GetLimit(), r.GetWindowSeconds(), r.GetAlgorithm(), r.GetEnabled())
	}
	return fmt.Sprintf("%s/%s %s, %d limits @%d", r.GetDomain(), r.GetId(), form, len(r.GetRule().GetLimits()), r.GetRevision())
}

func briefLimits(limits []*weirv1.RateLimit) string {
	var all []string
	for _, r := range limits {
		all = append(all, r.GetDomain()+"/"+r.GetId()+fmt.Sprint("@", r.GetRevision()))
	}
	return strings.Join(all, " ")
}

func (f *fixture) isStatus(t *testing.T, what string, err error, code codes.Code, want string) {
	t.Helper()
	if status.Code(err) != code || status.Convert(err).Message() != want {
		t.Errorf("%s:\n got %v\nwant %v %s", what, err, code, want)
	}
}

func TestConfigOneByOne(t *testing.T) {
	f, _, c := newConfig(t)
	ctx := t.Context()
	create := func(r *weirv1.RateLimit) (*weirv1.RateLimit, error) {
		return c.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: r})
	}
	update := func(r *weirv1.RateLimit) (*weirv1.RateLimit, error) {
		return c.UpdateRateLimit(ctx, &weirv1.UpdateRateLimitRequest{RateLimit: r})
	}
	get := func(domain, id string) (*weirv1.RateLimit, error) {
		return c.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: domain, Id: id})
	}
	is := func(got *weirv1.RateLimit, err error, want string) {
		t.Helper()
		if err != nil || briefLimit(got) != want {
			t.Errorf("got %s, %v, want %s", briefLimit(got), err, want)
		}
		if again, err := get(got.GetDomain(), got.GetId()); !proto.Equal(again, got) {
			t.Errorf("get returns %s, %v, not %s", briefLimit(again), err, briefLimit(got))
		}
	}
	limit, off := uint32(5), false
	got, err := create(&weirv1.RateLimit{Id: "a/b.c", Endpoint: "/x/*", IdentifierType: "user", Limit: &limit, WindowSeconds: 3600, Algorithm: "token_bucket", Enabled: &off})
	is(got, err, `default/a/b.c "/x/*" "user" 5/3600s token_bucket false, 1 limits @1`)
	got, err = create(simple("all", 0))
	is(got, err, `d/all "" "" 0/60s sliding_window true, 1 limits @2`)
	full := &weirv1.RateLimit{Domain: "d", Id: "full", Rule: &weirv1.Rule{
		When: map[string]*weirv1.Condition{"endpoint": {AnyOf: []string{"/x"}}},
		Per:  []*weirv1.AttributeSet{{Attributes: []string{"user"}}},
		Limits: []*weirv1.Limit{
			{Limit: 7, Window: "2m"},
		},
	}}
	got, err = create(full)
	is(got, err, `d/full "/x" "user" 7/120s sliding_window true, 1 limits @3`)

	// What the simple form cannot say it does not say.
	for _, change := range []func(r *weirv1.Rule){
		func(r *weirv1.Rule) { r.Limits = append(r.Limits, &weirv1.Limit{Limit: 9, Window: "1h"}) },
		func(r *weirv1.Rule) { r.Limits[0].Window = "1500ms" },
		func(r *weirv1.Rule) { r.Limits[0].Algorithm, r.Limits[0].Burst = "gcra", 9 },
		func(r *weirv1.Rule) { r.Per = append(r.Per, &weirv1.AttributeSet{Attributes: []string{"ip"}}) },
		func(r *weirv1.Rule) { r.Per[0].Attributes = []string{"ip", "user"} },
		func(r *weirv1.Rule) { r.When["endpoint"].AnyOf = []string{"/x", "/y"} },
		func(r *weirv1.Rule) { r.When["method"] = &weirv1.Condition{AnyOf: []string{"GET"}} },
		func(r *weirv1.Rule) { r.When = map[string]*weirv1.Condition{"method": {AnyOf: []string{"GET"}}} },
		func(r *weirv1.Rule) { r.When["endpoint"] = &weirv1.Condition{Absent: true} },
		func(r *weirv1.Rule) { r.OnFailure = "deny" },
		func(r *weirv1.Rule) { r.Durability = "strict" },
	} {
		changed := proto.CloneOf(full)
		change(changed.Rule)
		got, err := update(changed)
		if err != nil || got.Limit != nil || got.Endpoint != "" || got.Enabled != nil {
			t.Errorf("%v becomes %v, %v", changed, got, err)
		}
	}

	got, err = update(simple("full", 8))
	is(got, err, `d/full "" "" 8/60s sliding_window true, 1 limits @15`)
	at14 := simple("full", 9)
	at14.Revision = 14
	_, err = update(at14)
	f.isStatus(t, "update at an older revision", err, codes.Aborted, `another caller has changed the rules meanwhile: "full" in domain "d" is at revision 15, not 14`)
	_, err = update(simple("none", 9))
	f.isStatus(t, "update of nothing", err, codes.NotFound, `there is no such rule: "none" in domain "d"`)
	_, err = create(simple("all", 9))
	f.isStatus(t, "create again", err, codes.AlreadyExists, `there is such a rule already: "all" in domain "d"`)
	_, err = get("d", "none")
	f.isStatus(t, "get nothing", err, codes.NotFound, `there is no such rule: "none" in domain "d"`)

	_, err = c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: "d", Id: "full", Revision: 3})
	f.isStatus(t, "delete at an older revision", err, codes.Aborted, `another caller has changed the rules meanwhile: "full" in domain "d" is at revision 15, not 3`)
	deleted, err := c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: "d", Id: "full", Revision: 15})
	if err != nil || deleted.GetRevision() != 16 || deleted.GetRulesHash() != f.config.store.State().Set.Hash() {
		t.Errorf("delete: %v, %v", deleted, err)
	}
	_, err = c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: "d", Id: "full"})
	f.isStatus(t, "delete again", err, codes.NotFound, `there is no such rule: "full" in domain "d"`)

	// One rule that another refers to.
	exempt := &weirv1.RateLimit{Domain: "d", Id: "exempt", Rule: &weirv1.Rule{Replaces: []string{"all"}, Limits: []*weirv1.Limit{{Limit: 1, Window: "1s"}}}}
	if _, err := create(exempt); err != nil {
		t.Fatal(err)
	}
	_, err = c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: "d", Id: "all"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `rule "exempt": replaces`) {
		t.Errorf("delete what is referred to: %v", err)
	}
}

func TestConfigRefuses(t *testing.T) {
	f, m, c := newConfig(t)
	ctx := t.Context()
	limit := uint32(1)
	bad := []struct {
		rule *weirv1.RateLimit
		want string
	}{
		{nil, `rate_limit: must not be empty`},
		{&weirv1.RateLimit{Id: "r"}, `rate_limit.limit: is missing; give limit and window_seconds, or rule`},
		{&weirv1.RateLimit{Id: "r", WindowSeconds: 9}, `rate_limit.limit: is missing; give limit and window_seconds, or rule`},
		{&weirv1.RateLimit{Id: "r", Limit: &limit}, `rate_limit.window_seconds: 0 is not between 1 and 31622400`},
		{&weirv1.RateLimit{Id: "r", Limit: &limit, WindowSeconds: 31622401}, `rate_limit.window_seconds: 31622401 is not between 1 and 31622400`},
		{&weirv1.RateLimit{Id: "r", Enabled: proto.Bool(true), Rule: &weirv1.Rule{}}, `rate_limit: must have the simple fields or rule, or both if they say the same, but has both enabled and another rule`},
		{
			&weirv1.RateLimit{Id: "r", Limit: proto.Uint32(7), WindowSeconds: 60, Rule: &weirv1.Rule{Limits: []*weirv1.Limit{{Limit: 8, Window: "1m"}}}},
			`rate_limit: must have the simple fields or rule, or both if they say the same, but has both limit and another rule`,
		},
		{simple("", 1), `rules: id: "" has 0 bytes, not 1 to 128`},
		{simple("a b", 1), `rules: id: "a b" has characters other than letters, digits and _ - . /`},
		{simple("r", 2147483649), `rules: rule "r": limits[0].limit: "2147483649" is not between 0 and 2147483648`},
		{&weirv1.RateLimit{Domain: "d", Id: "r", Rule: &weirv1.Rule{}}, `rules: rule "r": limits: is missing`},
		{&weirv1.RateLimit{Domain: "d", Id: "r", Rule: &weirv1.Rule{Limits: []*weirv1.Limit{{Limit: 1, Window: "5"}, {Limit: 1, Window: "1s", Algorithm: "x"}}}},
			"rules: rule \"r\": limits[0].window: \"5\" is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d\n" +
				"rules: rule \"r\": limits[1].algorithm: \"x\" is not an algorithm; known are "},
	}
	for _, tc := range bad {
		_, err := c.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: tc.rule})
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || !strings.HasPrefix(got.Message(), tc.want) {
			t.Errorf("create %v:\n got %v\nwant %s", tc.rule, err, tc.want)
		}
		if strings.Contains(tc.want, "id: ") {
			continue // for an update they are only names that there are not
		}
		if tc.rule.GetId() == "r" {
			if _, err := c.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: &weirv1.RateLimit{Domain: tc.rule.Domain, Id: "r", Limit: &limit, WindowSeconds: 1}}); err != nil && status.Code(err) != codes.AlreadyExists {
				t.Fatal(err)
			}
		}
		_, err = c.UpdateRateLimit(ctx, &weirv1.UpdateRateLimitRequest{RateLimit: tc.rule})
		if got := status.Convert(err); got.Code() != codes.InvalidArgument || !strings.HasPrefix(got.Message(), tc.want) {
			t.Errorf("update to %v:\n got %v\nwant %s", tc.rule, err, tc.want)
		}
		if _, err := c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Domain: tc.rule.GetDomain(), Id: "r"}); err != nil && status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
	revision := simple("r", 1)
	revision.Revision = 1
	_, err := c.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: revision})
	f.isStatus(t, "create at a revision", err, codes.InvalidArgument, "rate_limit.revision: 1 is not 0, which a rule has that is not there yet")
	revision.Revision = -1
	_, err = c.UpdateRateLimit(ctx, &weirv1.UpdateRateLimitRequest{RateLimit: revision})
	f.isStatus(t, "update at a negative revision", err, codes.InvalidArgument, "rate_limit.revision: -1 is below 0")
	_, err = c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Id: "r", Revision: -1})
	f.isStatus(t, "delete at a negative revision", err, codes.InvalidArgument, "revision: -1 is below 0")
	_, err = c.DeleteRateLimit(ctx, &weirv1.DeleteRateLimitRequest{Id: ""})
	f.isStatus(t, "delete without an id", err, codes.InvalidArgument, "id: must not be empty")
	_, err = c.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Id: strings.Repeat("x", 129)})
	f.isStatus(t, "get a long id", err, codes.InvalidArgument, "id: 129 bytes are more than 128")
	_, err = c.GetRateLimit(ctx, &weirv1.GetRateLimitRequest{Domain: strings.Repeat("x", 65), Id: "x"})
	f.isStatus(t, "get in a long domain", err, codes.InvalidArgument, "domain: 65 bytes are more than 64")
	for _, tc := range []struct {
		req  *weirv1.ListRateLimitsRequest
		want string
	}{
		{&weirv1.ListRateLimitsRequest{Domain: strings.Repeat("x", 65)}, "domain: 65 bytes are more than 64"},
		{&weirv1.ListRateLimitsRequest{PageSize: -1}, "page_size: -1 is not between 0 and 1000"},
		{&weirv1.ListRateLimitsRequest{PageSize: 1001}, "page_size: 1001 is not between 0 and 1000"},
		{&weirv1.ListRateLimitsRequest{PageToken: "x"}, "page_token: is no next_page_token"},
	} {
		_, err = c.ListRateLimits(ctx, tc.req)
		f.isStatus(t, tc.want, err, codes.InvalidArgument, tc.want)
	}

	m.Err = errors.New("etcd at e:1: no answer in 2s")
	_, err = c.CreateRateLimit(ctx, &weirv1.CreateRateLimitRequest{RateLimit: simple("r", 1)})
	f.isStatus(t, "create without etcd", err, codes.Unavailable, "etcd at e:1: no answer in 2s; the change may have been made or not")
}

// A node with a file shows its rules and refuses to change them.
func TestConfigOfFile(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: [{id: r, limits: [{limit: 1, window: 1s}]}]\n")
	f.config = NewConfigServer(readOnly{apitest.FixedRules{Set: f.status.Set}})
	c := weirv1.NewRateLimiterConfigClient(f.dial(t))
	list, err := c.ListRateLimits(t.Context(), &weirv1.ListRateLimitsRequest{})
	if err != nil || briefLimits(list.GetRateLimits()) != "d/r@0" || list.GetRevision() != 0 {
		t.Errorf("%v, %v", list, err)
	}
	_, err = c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n", DryRun: true})
	f.isStatus(t, "apply", err, codes.FailedPrecondition, "rules cannot be changed through this node: it takes them from a file")
}

type readOnly struct{ apitest.FixedRules }

func (readOnly) Change(context.Context, bool, rules.Edit) (old, next *rules.State, err error) {
	return nil, nil, fmt.Errorf("%w: it takes them from a file", rules.ErrReadOnly)
}

func TestListRateLimitsInPages(t *testing.T) {
	f, _, c := newConfig(t)
	var text strings.Builder
	for _, domain := range []string{"e", "d"} {
		fmt.Fprintf(&text, "---\ndomain: %s\nrules:\n", domain)
		for i := range 7 {
			fmt.Fprintf(&text, "- {id: r/%d, limits: [{limit: 1, window: 1s}]}\n", 9-i)
		}
	}
	if _, err := c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: text.String()}); err != nil {
		t.Fatal(err)
	}
	pages := func(req *weirv1.ListRateLimitsRequest, between func()) []string {
		t.Helper()
		var got []string
		for {
			resp, err := c.ListRateLimits(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, briefLimits(resp.GetRateLimits()))
			if resp.GetNextPageToken() == "" {
				return got
			}
			req.PageToken = resp.GetNextPageToken()
			between()
		}
	}
	nothing := func() {}
	all := "d/r/3@1 d/r/4@1 d/r/5@1 d/r/6@1 d/r/7@1 d/r/8@1 d/r/9@1 e/r/3@1 e/r/4@1 e/r/5@1 e/r/6@1 e/r/7@1 e/r/8@1 e/r/9@1"
	for size := range int32(16) {
		got := pages(&weirv1.ListRateLimitsRequest{PageSize: size}, nothing)
		if strings.Join(got, " ") != all || size > 0 && len(got) != int(14+size-1)/int(size) {
			t.Errorf("pages of %d: %q", size, got)
		}
	}
	if got := fmt.Sprint(pages(&weirv1.ListRateLimitsRequest{PageSize: 4, Domain: "e"}, nothing)); got != "[e/r/3@1 e/r/4@1 e/r/5@1 e/r/6@1 e/r/7@1 e/r/8@1 e/r/9@1]" {
		t.Errorf("one domain: %s", got)
	}
	// Rules that stay are listed once, under any changes meanwhile.
	step := 0
	got := strings.Join(pages(&weirv1.ListRateLimitsRequest{PageSize: 5}, func() {
		step++
		if _, err := c.DeleteRateLimit(t.Context(), &weirv1.DeleteRateLimitRequest{Domain: "d", Id: fmt.Sprint("r/", 2+step)}); err != nil {
			t.Fatal(err)
		}
	}), " ")
	if got != all {
		t.Errorf("while rules are deleted: %s", got)
	}
	if f.config.store.State().Revision != 3 {
		t.Error("nothing was deleted")
	}
}

func compress(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestApplyRules(t *testing.T) {
	f, _, c := newConfig(t)
	one := "domain: d\nrules:\n- {id: a, limits: [{limit: 1, window: 1s}]}\n- {id: b, limits: [{limit: 1, window: 1s}]}\n"
	two := "domain: d\nrules:\n- {id: b, per: [user], limits: [{limit: 2, window: 1s}]}\n- {id: c, limits: [{limit: 1, window: 1s}]}\n"
	for _, tc := range []struct {
		req  *weirv1.ApplyRulesRequest
		want string
	}{
		{&weirv1.ApplyRulesRequest{Rules: one, DryRun: true}, "0 true +d/a +d/b"},
		{&weirv1.ApplyRulesRequest{Rules: one, ExpectedRevision: proto.Int64(0)}, "1 true +d/a +d/b"},
		{&weirv1.ApplyRulesRequest{Rules: one}, "1 false"},
		{&weirv1.ApplyRulesRequest{Rules: one, ExpectedRevision: proto.Int64(0)}, "Aborted another caller has changed the rules meanwhile: they are at revision 1, not 0"},
		{&weirv1.ApplyRulesRequest{RulesGzip: compress(t, two)}, "2 true +d/c ~d/b(per:->[user] limits[0].limit:1->2)"},
		{&weirv1.ApplyRulesRequest{RulesGzip: compress(t, two), Prune: true, DryRun: true}, "2 true -d/a"},
		{&weirv1.ApplyRulesRequest{RulesGzip: compress(t, two), Prune: true, ExpectedRevision: proto.Int64(2)}, "3 true -d/a"},
		{&weirv1.ApplyRulesRequest{Rules: "domain: e\nrules: []\n", Prune: true}, "3 false"},
		{&weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n"}, "3 false"},
		{&weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n", Prune: true}, "4 true -d/b -d/c"},

		{&weirv1.ApplyRulesRequest{}, "InvalidArgument rules: must not be empty; for no rules, write {domain: default, rules: []} and set prune"},
		{&weirv1.ApplyRulesRequest{Rules: one, RulesGzip: compress(t, one)}, "InvalidArgument rules_gzip: must not be given together with rules"},
		{&weirv1.ApplyRulesRequest{RulesGzip: []byte("plain")}, "InvalidArgument rules_gzip: unexpected EOF"},
		{&weirv1.ApplyRulesRequest{RulesGzip: []byte("plain and too long")}, "InvalidArgument rules_gzip: gzip: invalid header"},
		{&weirv1.ApplyRulesRequest{RulesGzip: compress(t, strings.Repeat(" ", 4<<20+1))}, "InvalidArgument rules_gzip: more than 4194304 bytes when decompressed"},
		{&weirv1.ApplyRulesRequest{Rules: one, Name: strings.Repeat("x", 257)}, "InvalidArgument name: 257 bytes are more than 256"},
		{&weirv1.ApplyRulesRequest{Rules: "domain: d\nruls: []\n", Name: "f.yaml"}, `InvalidArgument f.yaml:2:1: unknown key "ruls"; did you mean "rules"?`},
	} {
		resp, err := c.ApplyRules(t.Context(), tc.req)
		got := fmt.Sprint(resp.GetRevision(), " ", resp.GetChanged())
		for _, change := range resp.GetChanges() {
			got += " " + map[weirv1.RuleChange_Kind]string{1: "+", 2: "~", 3: "-"}[change.GetKind()] + change.GetDomain() + "/" + change.GetId()
			var fields []string
			for _, f := range change.GetFields() {
				fields = append(fields, f.GetField()+":"+f.GetOld()+"->"+f.GetNew())
			}
			if fields != nil {
				got += "(" + strings.Join(fields, " ") + ")"
			}
		}
		if err != nil {
			got = status.Code(err).String() + " " + status.Convert(err).Message()
		} else if resp.GetMoreChanges() != 0 {
			t.Errorf("%d more changes", resp.GetMoreChanges())
		}
		if got != tc.want {
			t.Errorf("apply %v:\n got %s\nwant %s", tc.req, got, tc.want)
		}
		if now := f.config.store.State().Set.Hash(); err == nil && !tc.req.GetDryRun() && now != resp.GetRulesHash() {
			t.Errorf("apply %v: hash %s, but %s is in force", tc.req, resp.GetRulesHash(), now)
		}
	}
}

// A file of a few KiB can take hundreds of MiB to read, and so only one is read at a time.
func TestFilesAreReadOneAtATime(t *testing.T) {
	f, _, _ := newConfig(t)
	req := &weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n", DryRun: true}
	f.config.parsing <- struct{}{}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.config.ApplyRules(ctx, req); status.Code(err) != codes.Canceled {
		t.Errorf("while another is read: %v, want to wait until cancelled", err)
	}
	<-f.config.parsing
	for range 2 {
		if _, err := f.config.ApplyRules(t.Context(), req); err != nil {
			t.Error(err)
		}
	}
}

// A file of 1,000 rules travels; its differences are counted beyond the first.
func TestApplyManyRules(t *testing.T) {
	_, _, c := newConfig(t)
	var text strings.Builder
	text.WriteString("domain: d\nrules:\n")
	for i := range 1100 {
		fmt.Fprintf(&text, "  - id: rule-number-%04d\n    when: {endpoint: /api/v1/resource/%d/items, method: [GET, POST, PUT, DELETE, PATCH]}\n"+
			"    per: [user, api_key]\n    limits:\n      - {limit: %d, window: 10s, algorithm: token_bucket, burst: 4000}\n      - {limit: %d, window: 1h}\n", i, i, i+1, 9*i+1)
	}
	if text.Len() < MaxMessage {
		t.Fatalf("%d bytes fit one message", text.Len())
	}
	if _, err := c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{RulesGzip: compress(t, text.String())}); err != nil {
		t.Fatal(err)
	}
	resp, err := c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n", Prune: true, DryRun: true})
	if err != nil || len(resp.GetChanges()) != 1000 || resp.GetMoreChanges() != 100 {
		t.Errorf("%d changes and %d more, %v", len(resp.GetChanges()), resp.GetMoreChanges(), err)
	}
}

// All that is wrong is said, in the message and in the details, as far as it fits.
func TestConfigErrorDetails(t *testing.T) {
	_, _, c := newConfig(t)
	apply := func(rule string, n int) ([]string, []*errdetails.BadRequest_FieldViolation) {
		_, err := c.ApplyRules(t.Context(), &weirv1.ApplyRulesRequest{Name: "f.yaml", Rules: "domain: d\nrules:\n" + strings.Repeat(rule, n)})
		st := status.Convert(err)
		if st.Code() != codes.InvalidArgument || len(st.Details()) != 1 {
			t.Fatal(err)
		}
		return strings.Split(st.Message(), "\n"), st.Details()[0].(*errdetails.BadRequest).GetFieldViolations()
	}
	lines, violations := apply("- {id: r, limits: [{limit: -1, window: 5, algorithm: x}]}\n", 1)
	var fields []string
	for i, v := range violations {
		fields = append(fields, v.GetField())
		if v.GetDescription() != lines[i] || !strings.HasPrefix(lines[i], "f.yaml:3:") {
			t.Errorf("%q and %q", lines[i], v.GetDescription())
		}
	}
	if got := strings.Join(fields, " "); got != "r.limits[0].limit r.limits[0].window r.limits[0].algorithm" || len(lines) != 3 {
		t.Errorf("%s in %q", got, lines)
	}

	// 50 of 70 problems are kept by package rules, and fewer fit if they are long.
	lines, violations = apply("- {id: r, enabled: 1, limits: [{limit: 1, window: 1s}]}\n", 36)
	if len(lines) != 51 || lines[50] != "and 21 more" || len(violations) != 50 {
		t.Errorf("%d lines, the last %q, %d violations", len(lines), lines[len(lines)-1], len(violations))
	}
	long := strings.Repeat("x", 60)
	lines, violations = apply("- {id: r, limits: [{limit: "+long+", window: "+long+"}]}\n", 30)
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	if n := len(violations); len(lines) != n+1 || n < 20 || size > 5<<10 || !strings.HasPrefix(lines[n], "and ") {
		t.Errorf("%d lines of %d bytes, %d violations, the last %q", len(lines), size, n, lines[len(lines)-1])
	}
}

func TestConfigOverHTTP(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	withStore(t, f)
	h := f.handler(t)
	for _, tc := range []struct {
		method, path, body string
		status             int
		want               string // a part of the answer
	}{
		{"GET", "/v1/rules", "", 200, `{"rate_limits":[],"next_page_token":"","revision":"0",`},
		{"POST", "/v1/rules", `{"id":"a/b.c","limit":7,"window_seconds":60}`, 200, `"domain":"default","id":"a/b.c","endpoint":"","identifier_type":"","limit":7,"window_seconds":60,"algorithm":"sliding_window","enabled":true,"rule":{`},
		{"POST", "/v1/rules", `{"id":"a/b.c","limit":7,"window_seconds":60}`, 409, `{"code":6,"message":"there is such a rule already: \"a/b.c\" in domain \"default\"","details":[]}`},
		{"POST", "/v1/rules", `{"id":"a","limt":7}`, 400, `{"code":3,"message":"body: line 1, column 11: unknown field \"limt\"","details":[]}`},
		{"POST", "/v1/rules", `{"id":"a","limit":-7,"window_seconds":60}`, 400, `{"code":3,"message":"body: line 1, column 19: invalid value for uint32 field limit: -7","details":[]}`},
		{"POST", "/v1/rules", `{"id":"a","limit":2147483649,"window_seconds":60}`, 400, `"details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","field_violations":[{"field":"a.limits[0].limit",`},
		{"GET", "/v1/rules/default/a/b.c", "", 200, `"revision":"1"}`},
		{"GET", "/v1/rules/default/a/b", "", 404, `{"code":5,"message":"there is no such rule: \"a/b\" in domain \"default\"","details":[]}`},
		{"PUT", "/v1/rules/default/a/b.c", `{"limit":8,"window_seconds":60,"revision":"1"}`, 200, `"revision":"2"}`},
		{"PUT", "/v1/rules/default/a/b.c", `{"limit":9,"window_seconds":60,"revision":"1"}`, 409, `{"code":10,"message":"another caller has changed the rules meanwhile: \"a/b.c\" in domain \"default\" is at revision 2, not 1","details":[]}`},
		{"PUT", "/v1/rules/default/x", `{"limit":9,"window_seconds":60}`, 404, `"code":5`},
		{"GET", "/v1/rules?domain=default&page_size=1", "", 200, `"next_page_token":"","revision":"2"`},
		{"GET", "/v1/rules?page_size=x", "", 400, `"code":3`},
		{"POST", "/v1/rules:apply", `{"rules":"domain: d\nrules: [{id: x, limits: [{limit: 1, window: 1s}]}]\n"}`, 200, `"changes":[{"kind":"KIND_ADDED","domain":"d","id":"x","fields":[]}],"more_changes":0,"changed":true}`},
		{"POST", "/v1/rules:apply", `{"rules":"` + strings.Repeat("#", MaxMessage) + `"}`, 400, `rules:1:1: the file is empty`},
		{"POST", "/v1/rules:apply", `{"rules":"` + strings.Repeat("#", maxApply) + `"}`, 413, `{"code":3,"message":"body: more than 5242880 bytes","details":[]}`},
		{"POST", "/v1/rules", `{"id":"` + strings.Repeat("x", MaxMessage) + `"}`, 413, `{"code":3,"message":"body: more than 262144 bytes","details":[]}`},
		{"PUT", "/v1/rules/default/a/b.c?revision=1", `{"limit":9,"window_seconds":60}`, 400, `query: nothing reads \"revision\": PUT /v1/rules/default/a/b.c takes no such parameter`},
		{"POST", "/v1/rules", `{"id":"a/../b","limit":9,"window_seconds":60}`, 400, `\"a/../b\" cannot stand in a path`},
		{"DELETE", "/v1/rules/default/a/b.c?revision=1", "", 409, `"code":10`},
		{"DELETE", "/v1/rules/default/a/b.c", "", 200, `{"revision":"4",`},
		{"DELETE", "/v1/rules/default/a/b.c", "", 404, `"code":5`},
		{"PATCH", "/v1/rules", "", 405, `method: PATCH is not GET, HEAD, POST`},
		{"POST", "/v1/rules/d/x", "{}", 405, `method: POST is not GET, HEAD, PUT, DELETE`},
		{"GET", "/v1/rules:apply", "", 405, `method: GET is not POST`},
	} {
		w := send(h, tc.method, tc.path, tc.body)
		var got bytes.Buffer // protojson puts spaces where it likes
		if err := json.Compact(&got, w.Body.Bytes()); err != nil {
			t.Errorf("%s %s: %v: %s", tc.method, tc.path, err, w.Body)
		}
		if w.Code != tc.status || !strings.Contains(got.String(), tc.want) {
			t.Errorf("%s %s %.80s:\n got %d %s\nwant %d %s", tc.method, tc.path, tc.body, w.Code, got.String(), tc.status, tc.want)
		}
	}
	if w := send(h, http.MethodPost, "/v1/rules/d/x", "{}"); w.Header().Get("Allow") != "GET, HEAD, PUT, DELETE" {
		t.Errorf("Allow: %s", w.Header().Get("Allow"))
	}
}

func TestChangesAreBounded(t *testing.T) {
	f, _, c := newConfig(t)
	var releases []func()
	for range maxWriters {
		release, err := f.config.startWriting()
		if err != nil {
			t.Fatal(err)
		}
		releases = append(releases, release)
	}
	const want = "64 changes of rules are under way, which is the most"
	_, err := c.CreateRateLimit(t.Context(), &weirv1.CreateRateLimitRequest{RateLimit: simple("r", 1)})
	f.isStatus(t, "create", err, codes.ResourceExhausted, want)
	file := &weirv1.ApplyRulesRequest{Rules: "domain: d\nrules: []\n"}
	_, err = c.ApplyRules(t.Context(), file)
	f.isStatus(t, "apply", err, codes.ResourceExhausted, want)
	releases[0]()
	if _, err := c.ApplyRules(t.Context(), file); err != nil {
		t.Error(err)
	}
	if len(f.config.writing) != maxWriters-1 || len(f.config.parsing) != 0 {
		t.Error("a change keeps its place")
	}

	// Bodies are large, so only a few are read at once.
	entered, leave := make(chan struct{}), make(chan struct{})
	h := atOnce(1, runtime.NewServeMux(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	}))
	first := make(chan int)
	go func() { first <- send(h, http.MethodPost, "/", "").Code }()
	<-entered
	if w := send(h, http.MethodPost, "/", ""); w.Code != http.StatusTooManyRequests || !strings.Contains(w.Body.String(), "1 requests of this kind are under way, which is the most") {
		t.Errorf("one too many: %d %s", w.Code, w.Body)
	}
	close(leave)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first: %d", code)
	}
}

// What a GET returns, a PUT takes, whether the simple fields say it all or not.
func TestReadRulesCanBeWritten(t *testing.T) {
	f := newFixture(t, "domain: d\nrules: []\n")
	withStore(t, f)
	h := f.handler(t)
	for id, body := range map[string]string{
		"simple": `{"id":"simple","endpoint":"/x*","identifier_type":"user","limit":7,"window_seconds":60,"algorithm":"gcra","enabled":false}`,
		"full":   `{"id":"full","rule":{"per":[{"attributes":["user"]}],"limits":[{"limit":7,"window":"1m"},{"limit":9,"window":"90s"}],"enforce":"5"}}`,
	} {
		if w := send(h, http.MethodPost, "/v1/rules", body); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", id, w.Code, w.Body)
		}
		path := "/v1/rules/default/" + id
		read := send(h, http.MethodGet, path, "").Body.String()
		w := send(h, http.MethodPut, path, read)
		if again := send(h, http.MethodGet, path, "").Body.String(); w.Code != http.StatusOK || again != read {
			t.Errorf("%s: %d %s\n%s\n%s", id, w.Code, w.Body, read, again)
		}
	}
}
