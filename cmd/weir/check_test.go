package main

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var (
	allowedAnswer = &weirv1.RateLimitResponse{
		Allowed: true, Limit: 10, RemainingTokens: 9, ResetTime: 1_700_000_042,
		RuleId: "posts-per-user", Source: weirv1.Source_SOURCE_OWNER, Window: durationpb.New(time.Minute),
	}
	deniedAnswer = &weirv1.RateLimitResponse{
		Limit: 10, ResetTime: 1_700_000_042, RetryAfterSeconds: 12, RetryAfter: durationpb.New(11_900_500 * time.Microsecond),
		RuleId: "posts-per-user", Source: weirv1.Source_SOURCE_OWNER, Window: durationpb.New(time.Minute),
	}
	noRuleAnswer   = &weirv1.RateLimitResponse{Allowed: true, Source: weirv1.Source_SOURCE_NO_RULE}
	failOpenAnswer = &weirv1.RateLimitResponse{
		Allowed: true, Limit: 500, RuleId: "posts-per-user", Source: weirv1.Source_SOURCE_FAIL_OPEN, Window: durationpb.New(time.Hour),
	}
)

func TestCheck(t *testing.T) {
	tests := []struct {
		answer *weirv1.RateLimitResponse
		args   string
		want   outcome
	}{
		{allowedAnswer, "user=alice endpoint=/api/v1/posts", outcome{0, `allowed  user=alice endpoint=/api/v1/posts
rule     posts-per-user: 10 per minute, 9 remaining, resets now
source   owner (the node that keeps the counter)
`, ""}},
		{deniedAnswer, "endpoint=/api/v1/posts user=alice --peek", outcome{1, `denied   user=alice endpoint=/api/v1/posts, retry after 12s (only looked)
rule     posts-per-user: 10 per minute, 0 remaining, resets now
source   owner (the node that keeps the counter)
`, ""}},
		{noRuleAnswer, "ip=10.0.0.1 method=GET", outcome{0, `allowed  ip=10.0.0.1
rule     none
source   no_rule (nothing limits this request)
`, ""}},
		{failOpenAnswer, "user=alice", outcome{0, `allowed  user=alice
rule     posts-per-user: 500 per hour
source   fail_open (no node that could decide answered in time)
`, ""}},
		{allowedAnswer, "user=alice --json", outcome{0, `{"allowed":true,"limit":10,"remaining_tokens":9,"reset_time":"1700000042",` +
			`"retry_after_seconds":0,"rule_id":"posts-per-user","source":"SOURCE_OWNER","window":"60s","limits":[]}` + "\n", ""}},
		{deniedAnswer, "user=alice --json", outcome{1, `{"allowed":false,"limit":10,"remaining_tokens":0,"reset_time":"1700000042",` +
			`"retry_after_seconds":12,"retry_after":"11.900500s","rule_id":"posts-per-user","source":"SOURCE_OWNER","window":"60s","limits":[]}` + "\n", ""}},
	}
	for _, test := range tests {
		address := listen(t, &fakeNode{answer: test.answer})
		got := weir(t, []string{"WEIR_NODE=" + address}, append([]string{"check"}, strings.Fields(test.args)...)...)
		if got != test.want {
			t.Errorf("weir check %s:\n got %+v\nwant %+v", test.args, got, test.want)
		}
	}
}

// TestCheckNodePrecedence: the flag wins over the variable.
func TestCheckNodePrecedence(t *testing.T) {
	address := listen(t, &fakeNode{answer: noRuleAnswer})
	got := weir(t, []string{"WEIR_NODE=127.0.0.1:1"}, "check", "user=alice", "--node", address)
	if got.code != 0 {
		t.Errorf("got %+v", got)
	}
}

func TestCheckRequest(t *testing.T) {
	tests := []struct {
		args string
		want *weirv1.RateLimitRequest
	}{
		{"user=alice", &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice", TokensRequested: 1}},
		{"endpoint=/a ip=10.0.0.1 user=alice method=GET --cost 5 --peek --domain shop", &weirv1.RateLimitRequest{
			IdentifierType: "ip", Identifier: "10.0.0.1", Endpoint: "/a", TokensRequested: 5, Peek: true, Domain: "shop",
			Attributes: map[string]string{"user": "alice", "method": "GET"},
		}},
		{"api_key=a=b== q=", &weirv1.RateLimitRequest{
			IdentifierType: "api_key", Identifier: "a=b==", TokensRequested: 1, Attributes: map[string]string{"q": ""},
		}},
	}
	for _, test := range tests {
		fake := &fakeNode{answer: noRuleAnswer}
		weir(t, []string{"WEIR_NODE=" + listen(t, fake)}, append([]string{"check"}, strings.Fields(test.args)...)...)
		if !proto.Equal(fake.check, test.want) {
			t.Errorf("weir check %s:\n got %v\nwant %v", test.args, fake.check, test.want)
		}
	}
}

func TestFormatDecision(t *testing.T) {
	request := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: "alice", TokensRequested: 20}
	answer := func(change func(*weirv1.RateLimitResponse)) *weirv1.RateLimitResponse {
		response := proto.CloneOf(deniedAnswer)
		change(response)
		return response
	}
	tests := []struct {
		response *weirv1.RateLimitResponse
		want     string // a line of the output
	}{
		{allowedAnswer, "allowed  user=alice cost 20"},
		{allowedAnswer, "rule     posts-per-user: 10 per minute, 9 remaining, resets now"},
		{deniedAnswer, "denied   user=alice cost 20, retry after 12s"},
		{answer(func(r *weirv1.RateLimitResponse) { r.RetryAfter = nil }), "denied   user=alice cost 20, no wait helps: it costs more than the limit"},
		{answer(func(r *weirv1.RateLimitResponse) { r.RetryAfter = durationpb.New(120_100_000) }), "denied   user=alice cost 20, retry after 121ms"},
		{answer(func(r *weirv1.RateLimitResponse) { r.ResetAfter = durationpb.New(3661 * time.Second) }), "rule     posts-per-user: 10 per minute, 0 remaining, resets in 1h1m1s"},
		{answer(func(r *weirv1.RateLimitResponse) { r.Window = nil }), "rule     posts-per-user"},
		{answer(func(r *weirv1.RateLimitResponse) { r.Window = durationpb.New(90 * time.Second) }), "rule     posts-per-user: 10 per 1m30s, 0 remaining, resets now"},
		{answer(func(r *weirv1.RateLimitResponse) { r.Source = 99 }), "source   99"},
		{answer(func(r *weirv1.RateLimitResponse) { r.Source = weirv1.Source_SOURCE_RELAYED }), "source   relayed (the node that keeps the counter, through another member)"},
		{answer(func(r *weirv1.RateLimitResponse) { r.Source = weirv1.Source_SOURCE_PROVISIONAL }), "source   provisional (the standby, from its copy: the node that keeps the counter did not answer in time)"},
	}
	for _, test := range tests {
		got := formatDecision(request, test.response)
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(test.want) + `$`).MatchString(got) {
			t.Errorf("got\n%swant the line\n%s", got, test.want)
		}
	}
}

// brokenPipe is what is left of stdout after "| head -1".
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestCheckCannotPrint(t *testing.T) {
	var stderr strings.Builder
	address := listen(t, &fakeNode{answer: allowedAnswer})
	a := newApp(nil, brokenPipe{}, &stderr)
	if code := a.run([]string{"check", "user=alice", "--node", address}); code != 2 || stderr.String() != "weir: broken pipe\n" {
		t.Errorf("exit code %d, %s", code, stderr.String())
	}
}
