package api

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

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

// The other APIs would look at nothing of it.
func TestDescriptorsAreEnvoysOnly(t *testing.T) {
	f := newFixture(t, "domain: edge\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 3}}]\n")
	const want = `domain: "edge" has descriptors, which only Envoy's API reads; ask with ShouldRateLimit, POST /json, or weir check --descriptor`
	_, err := f.server().CheckRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
	_, err = f.server().ExplainRateLimit(t.Context(), request("user=a domain=edge"))
	refused(t, err, want)
}
