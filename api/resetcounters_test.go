package api

import (
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

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
