package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const statusRules = `
domain: default
rules:
  - {id: posts, when: {endpoint: /posts}, per: [user], limits: [{limit: 10, window: 1m, algorithm: fixed_window}, {limit: 100, window: 1h, algorithm: fixed_window}]}
  - {id: likes, when: {endpoint: /likes}, per: [user], limits: [{limit: 5, window: 1m, algorithm: fixed_window}]}
  - {id: pair, per: [[tenant, user]], limits: [{limit: 3, window: 1m, algorithm: fixed_window}]}
  - {id: all, when: {endpoint: "*"}, limits: [{limit: 50, window: 1m, algorithm: fixed_window}]}
  - {id: staff, when: {user: root}, unlimited: true}
  - {id: off, per: [user], limits: [{limit: 1, window: 1m}], enabled: false}
`

// lines tells limits, one per line.
func lines(limits []*weirv1.LimitStatus) string {
	var b strings.Builder
	for _, l := range limits {
		fmt.Fprintf(&b, "%s %d/%v %s left %d", l.GetRuleId(), l.GetLimit(), l.GetWindow().AsDuration(), l.GetOwner(), l.GetRemainingTokens())
		if !l.GetAllowed() {
			fmt.Fprintf(&b, " denied for %v", l.GetRetryAfter().AsDuration())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The answers name the owner and the standby of each counter.
func TestNodesOfACounter(t *testing.T) {
	f := newFixture(t, statusRules)
	resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil || len(resp.GetLimits()) == 0 {
		t.Fatal(resp, err)
	}
	for _, l := range resp.GetLimits() {
		if l.GetOwner() != "here" || l.GetStandby() != "there" {
			t.Errorf("%s: owner %q, standby %q", l.GetRuleId(), l.GetOwner(), l.GetStandby())
		}
	}
}

func expectLines(t *testing.T, what, got, want string) {
	t.Helper()
	if got != strings.TrimPrefix(want, "\n") {
		t.Errorf("%s\ngot\n%s\nwant%s", what, got, want)
	}
}

func TestStatusOfAnIdentifier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, statusRules)
		f.check(t, "user=alice endpoint=/posts cost=10")
		f.check(t, "user=alice endpoint=/likes cost=2")
		for range 2 { // the second sees that the first has counted nothing
			resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
			if err != nil {
				t.Fatal(err)
			}
			expectLines(t, "alice", lines(resp.GetLimits()), `
posts 10/1m0s here left 0 denied for 1m0s
posts 100/1h0m0s here left 90
likes 5/1m0s here left 3
`)
		}
		resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{
			IdentifierType: "user", Identifier: "alice", Endpoint: "/likes", Attributes: map[string]string{"tenant": "t"},
		})
		if err != nil {
			t.Fatal(err)
		}
		expectLines(t, "alice of t at /likes", lines(resp.GetLimits()), "\nlikes 5/1m0s here left 3\npair 3/1m0s here left 3\n")
		_, err = f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user"})
		refused(t, err, "identifier: must not be empty")
	})
}

const nextRules = `
domain: default
rules:
  - {id: later, when: {endpoint: /later}, per: [user], limits: [{limit: 1, window: 1s, algorithm: token_bucket}], max_delay: 2s}
  - {id: soft, when: {endpoint: /soft}, per: [user], limits: [{limit: 10, window: 1m, algorithm: fixed_window}], mode: {soft: {over: 20%}}}
  - {id: monthly, when: {endpoint: /bill}, per: [user], limits: [{limit: 3, window: {calendar: month, timezone: Europe/Paris}, algorithm: fixed_window}]}
  - {id: never, when: {endpoint: /secret}, per: [user], limits: [{limit: 0, window: 1s}]}
`

// A status tells what the next request would be told.
func TestStatusOfTheNextRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, nextRules)
		f.check(t, "user=a endpoint=/later")
		f.check(t, "user=a endpoint=/soft cost=10")
		for _, tc := range []struct{ endpoint, domain, want string }{
			{"/later", "", "allowed after 0s delay 1s over false 1s"},
			{"/soft", "", "allowed after 0s delay 0s over true 1m0s"},
			{"/bill", "", "allowed after 0s delay 0s over false month/Europe/Paris"},
			{"/secret", "", "denied after never delay 0s over false 1s"},
			{"/soft", "elsewhere", ""},
		} {
			resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{
				IdentifierType: "user", Identifier: "a", Endpoint: tc.endpoint, Domain: tc.domain,
			})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, l := range resp.GetLimits() {
				word, after, window := "allowed", l.GetRetryAfter().AsDuration().String(), l.GetCalendar()
				if !l.GetAllowed() {
					word = "denied"
					if l.GetRetryAfter() == nil {
						after = "never"
					}
				}
				if l.GetWindow() != nil {
					window += l.GetWindow().AsDuration().String()
				}
				got += fmt.Sprintf("%s after %s delay %v over %t %s", word, after, l.GetDelay().AsDuration(), l.GetOverLimit(), window)
			}
			if got != tc.want {
				t.Errorf("%+v\ngot %s", tc, got)
			}
		}
	})
}

// askingMore is a Decider during which another request is made.
type askingMore struct {
	Decider
	ask func()
}

func (d *askingMore) Decide(ctx context.Context, groups []shard.Group) {
	if ask := d.ask; ask != nil {
		d.ask = nil
		ask()
	}
	d.Decider.Decide(ctx, groups)
}

// A request that comes while a status waits for its answer does not use its memory.
func TestStatusSharesNoMemory(t *testing.T) {
	f := newFixture(t, statusRules)
	f.checks.Decider = &askingMore{f, func() { f.check(t, "user=bob endpoint=/other tenant=t") }}
	resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	expectLines(t, "alice", lines(resp.GetLimits()), "\nposts 10/1m0s here left 10\nposts 100/1h0m0s here left 100\nlikes 5/1m0s here left 5\n")
}

// The answer of a status is bounded. An undecided counter is shown as a check would be decided.
func TestStatusByFailurePolicy(t *testing.T) {
	f := newFixture(t, `
domain: default
rules:
  - {id: open, per: [user], limits: [{limit: 1, window: 1m}]}
  - {id: closed, per: [user], limits: [{limit: 1, window: 1m}], on_failure: deny}
`)
	f.silent = func(shard.Take) bool { return true }
	resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"true SOURCE_FAIL_OPEN", "false SOURCE_FAIL_CLOSED"} {
		if l := resp.GetLimits()[i]; fmt.Sprint(l.GetAllowed(), " ", l.GetSource()) != want {
			t.Errorf("%v, want %s", l, want)
		}
	}
}

func TestStatusOfVeryManyRules(t *testing.T) {
	var text strings.Builder
	text.WriteString("domain: default\nrules:\n")
	for i := range maxListed + 5 {
		fmt.Fprintf(&text, "  - {id: r%d, when: {endpoint: /e%d}, per: [user], limits: [{limit: 1, window: 1m}]}\n", i, i)
	}
	f := newFixture(t, text.String())
	resp, err := f.server().GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice"})
	if err != nil || len(resp.GetLimits()) != maxListed || resp.GetOmitted() != 5 {
		t.Errorf("%d limits, %d omitted, %v", len(resp.GetLimits()), resp.GetOmitted(), err)
	}
	explained, err := f.server().ExplainRateLimit(t.Context(), request("user=alice endpoint=/e1004"))
	if err != nil || len(explained.GetRules()) != maxListed+1 || explained.GetOmitted() != 4 || explained.GetRules()[maxListed].GetRuleId() != "r1004" {
		t.Errorf("%d rules, %d omitted, %v", len(explained.GetRules()), explained.GetOmitted(), err)
	}
	_, err = healthServer{limiter: f.Limiter}.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"})
	refused(t, err, "identifier: chooses 1005 counters, more than 1000; name a rule_id")
}

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

func TestReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, statusRules)
		server := healthServer{limiter: f.Limiter}
		use := func() {
			f.check(t, "user=alice endpoint=/posts cost=10")
			f.check(t, "user=alice endpoint=/likes cost=5")
			f.check(t, "user=bob endpoint=/likes cost=5")
		}
		left := func(request string, want uint32) {
			t.Helper()
			if got := f.check(t, request+" peek"); got.GetRemainingTokens() != want {
				t.Errorf("%s: %v, want %d left", request, got, want)
			}
		}
		use()
		for _, tc := range []struct {
			req  *weirv1.ResetRateLimitRequest
			want string
		}{
			{&weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice", RuleId: "likes"}, "\nlikes 5/1m0s here left 5\n"},
			{&weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"}, `
posts 10/1m0s here left 10
posts 100/1h0m0s here left 100
likes 5/1m0s here left 5
`},
			{&weirv1.ResetRateLimitRequest{RuleId: "all"}, "\nall 50/1m0s here left 50\n"},
			{&weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice", RuleId: "pair", Attributes: map[string]string{"tenant": "t"}}, "\npair 3/1m0s here left 3\n"},
			{&weirv1.ResetRateLimitRequest{IdentifierType: "team", Identifier: "x"}, "\n"},
		} {
			resp, err := server.ResetRateLimit(t.Context(), tc.req)
			if err != nil {
				t.Fatal(err)
			}
			expectLines(t, tc.req.String(), lines(resp.GetLimits()), tc.want)
		}
		left("user=alice endpoint=/likes", 4)
		left("user=alice endpoint=/posts", 9)
		if got := f.check(t, "user=bob endpoint=/likes"); got.GetAllowed() {
			t.Errorf("bob was reset as well: %v", got)
		}
		_, err := server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{RuleId: "none"})
		if st := status.Convert(err); st.Code() != codes.NotFound || st.Message() != `rule_id: domain "default" has no rule "none"` {
			t.Errorf("%v", err)
		}
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice", RuleId: "pair"})
		refused(t, err, `attributes: rule "pair" counts by tenant and user; give a value for each`)
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{RuleId: "staff"})
		refused(t, err, `rule_id: "staff" is unlimited and counts nothing`)
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{})
		refused(t, err, "identifier: must not be empty")

		f.silent = func(take shard.Take) bool { return take.Limit.Limit == 5 }
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		const want = "1 of 3 counters were not reset, because their owner does not answer: here; try again"
		if st := status.Convert(err); st.Code() != codes.Unavailable || st.Message() != want {
			t.Errorf("%v, want %s", err, want)
		}
		f.silent = func(shard.Take) bool { return true }
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", Identifier: "alice"})
		if got, want := status.Convert(err).Message(), strings.Replace(want, "1 of", "3 of", 1); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		f.silent = nil
		for source, want := range map[shard.Source]codes.Code{
			shard.Local:       codes.Unavailable, // its share of the limit is not the counter,
			shard.Provisional: codes.Unavailable, // nor is a copy
			shard.Relayed:     codes.OK,
		} {
			f.source = source
			_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{RuleId: "all"})
			if status.Code(err) != want {
				t.Errorf("by source %d: %v", source, err)
			}
		}
		_, err = server.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{IdentifierType: "user", RuleId: "all"})
		refused(t, err, "identifier: must not be empty")
		f = newFixture(t, semanticsRules)
		_, err = healthServer{limiter: f.Limiter}.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{RuleId: "hybrid"})
		refused(t, err, `attributes: rule "hybrid" counts by ip, or by user; give a value for each`)
	})
}

// The same over HTTP.
func TestStatusExplainResetOverHTTP(t *testing.T) {
	f := newFixture(t, statusRules)
	h := f.handler(t)
	for path, want := range map[string]string{
		"/v1/status":  `"rule_id":"likes"`,
		"/v1/explain": `"reason":"the request has no attribute tenant"`,
		"/v1/reset":   `"rule_id":"likes"`,
	} {
		w := send(h, http.MethodPost, path, `{"identifier_type":"user","identifier":"alice"}`)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
		if w := send(h, http.MethodGet, path, ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
			t.Errorf("GET %s: %d %v", path, w.Code, w.Header())
		}
	}
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

// The other APIs would look at nothing of it.
func TestDescriptorsAreEnvoysOnly(t *testing.T) {
	f := newFixture(t, "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	const want = `domain: "edge" has descriptors, which only Envoy's API reads; ask with ShouldRateLimit, POST /json, or weir check --descriptor`
	_, err := f.server().CheckRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
	_, err = f.server().ExplainRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
}
