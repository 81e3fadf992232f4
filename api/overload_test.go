package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const overloadRules = `
domain: default
rules:
  - {id: here, per: [user], limits: [{limit: 9, window: 1h}]}
  - {id: there, when: {endpoint: /there}, limits: [{limit: 5, window: 1h}]}
`

// overloadedThere is a Decider without time for limits of 5.
type overloadedThere struct {
	Decider
	shadow bool
}

func (d overloadedThere) Decide(ctx context.Context, groups []shard.Group) {
	for i := range groups {
		g := &groups[i]
		one := []shard.Group{*g}
		d.Decider.Decide(ctx, one)
		for j := range g.Takes {
			if t := &g.Takes[j]; t.Limit.Limit == 5 {
				*t = shard.Take{Key: t.Key, Limit: t.Limit, Cost: t.Cost, Source: shard.Overloaded, Shadow: d.shadow}
				g.Allowed = d.shadow
			}
		}
	}
}

func TestOverload(t *testing.T) {
	f := newFixture(t, overloadRules)
	f.checks.Decider = overloadedThere{Decider: f}
	f.check(t, "user=alice")
	_, err := f.server().CheckRateLimit(t.Context(), request("user=alice endpoint=/there"))
	if st := status.Convert(err); st.Code() != codes.ResourceExhausted || !strings.HasPrefix(st.Message(), "overloaded: ") {
		t.Errorf("check: %v", err)
	}
	_, err = f.server().CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		request("user=alice"), request("user=alice endpoint=/there"),
	}})
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("batch: %v", err)
	}
	if _, err := f.server().ExplainRateLimit(t.Context(), request("user=alice endpoint=/there")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("explain: %v", err)
	}
	resp, err := f.Limiter.envoy.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: apitest.Descriptors("user=alice", "user=alice endpoint=/there"),
	})
	if err != nil || resp.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT ||
		resp.GetStatuses()[0].GetCode() != rlsv3.RateLimitResponse_OK || resp.GetStatuses()[1].GetCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("envoy: %v, %v", resp, err)
	}
	stream := f.stream(t)
	for id, texts := range [][]string{{"user=bob", "user=bob endpoint=/there"}, {"user=bob"}} {
		stream.send(uint64(id), texts...)
		want := []string{"8 " + status.Convert(check.ErrOverloaded).Message(), ""}[id]
		if m := stream.receive(); briefError(m) != want {
			t.Errorf("stream: %v, want %q", m, want)
		}
	}
	if got := apitest.Checks(t, f.registry, "denied", "overloaded"); got != 7 {
		t.Errorf("%v counted, want one of the check, two of the batch, one explained, two of the stream and one descriptor", got)
	}
	f.checks.Decider = overloadedThere{Decider: f, shadow: true}
	if resp := f.check(t, "user=alice endpoint=/there"); !resp.GetAllowed() || resp.GetWouldDeny() || resp.GetSource() != weirv1.Source_SOURCE_FAIL_OPEN {
		t.Errorf("a shadow: %v", resp)
	}
	resp, err = f.Limiter.envoy.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: apitest.Descriptors("endpoint=/there"),
	})
	if err != nil || resp.GetOverallCode() != rlsv3.RateLimitResponse_OK {
		t.Errorf("a shadow, of an envoy: %v, %v", resp, err)
	}
}

const inspectedRules = `
domain: d
rules:
  - {id: here, per: [user], limits: [{limit: 9, window: 1h}]}
  - {id: there, per: [user], limits: [{limit: 5, window: 1h}]}
  - {id: nowhere, per: [user], limits: [{limit: 4, window: 1h}]}
`

// A counter that there was no time for must not look like one that is used up.
func TestStatusUnderOverload(t *testing.T) {
	f := newFixture(t, inspectedRules)
	f.checks.Decider = overloadedThere{Decider: f}
	req := &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "alice", Domain: "d"}
	if resp, err := f.server().GetRateLimitStatus(t.Context(), req); !errors.Is(err, check.ErrOverloaded) {
		t.Errorf("%v, %v", resp, err)
	}
	f.checks.Decider = overloadedThere{Decider: f, shadow: true}
	if resp, err := f.server().GetRateLimitStatus(t.Context(), req); err != nil || len(resp.GetLimits()) != 3 {
		t.Errorf("a shadow: %v, %v", resp, err)
	}
}

// A reset reports which counters have failed by overload, and which by silence.
func TestResetUnderOverload(t *testing.T) {
	f := newFixture(t, inspectedRules)
	f.checks.Decider = overloadedThere{Decider: f}
	for _, tc := range []struct {
		rule, want string
		silent     bool
	}{
		{"there", "overloaded: 1 of 1 counters were not reset, because their owner has no time for them: here; try again", false},
		{"", "2 of 3 counters were not reset, because their owner does not answer or has no time for them: here; try again", true},
		{"nowhere", "1 of 1 counters were not reset, because their owner does not answer: here; try again", true},
	} {
		f.silent = func(take shard.Take) bool { return tc.silent && take.Limit.Limit == 4 }
		_, err := healthServer{limiter: f.Limiter}.ResetRateLimit(t.Context(), &weirv1.ResetRateLimitRequest{
			IdentifierType: "user", Identifier: "alice", Domain: "d", RuleId: tc.rule,
		})
		code := codes.Unavailable
		if !tc.silent {
			code = codes.ResourceExhausted
		}
		if st := status.Convert(err); st.Code() != code || st.Message() != tc.want {
			t.Errorf("rule %q: %v, want %v %s", tc.rule, err, code, tc.want)
		}
	}
}

// Over HTTP a 429 would say that the limit is reached.
func TestOverloadOverHTTP(t *testing.T) {
	f := newFixture(t, overloadRules)
	f.checks.Decider = overloadedThere{Decider: f}
	w := send(f.handler(t), http.MethodPost, checkPath, `{"identifier_type":"user","identifier":"alice","endpoint":"/there"}`)
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "overloaded: ") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// noTime is an Overload that has no time for any call.
type noTime struct{ acceptAll }

func (noTime) Accept() bool { return false }

// Calls that there is no time for are refused before they are read, and none is counted.
func TestCallsAreRefusedUnread(t *testing.T) {
	f := newFixture(t, "domain: default\nrules:\n- {id: r, per: [user], on_failure: deny, limits: [{limit: 9, window: 1h}]}\n")
	f.overload = noTime{}
	f.tap = f.Limiter.Tap
	conn := f.dial(t)
	limiter := weirv1.NewRateLimiterClient(conn)
	_, check := limiter.CheckRateLimit(t.Context(), request("user="))
	_, batch := limiter.CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{})
	for _, err := range []error{check, batch} {
		if st := status.Convert(err); st.Code() != codes.ResourceExhausted || st.Message() != status.Convert(errRefused).Message() {
			t.Error(err)
		}
	}
	if _, err := limiter.GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: "a"}); err != nil {
		t.Errorf("status: %v", err)
	}
	envoy, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: "default", Descriptors: apitest.Descriptors("user=alice"),
	})
	if err != nil || envoy.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("envoy: %v, %v", envoy, err)
	}
	stream := f.stream(t)
	stream.send(7, "user=alice")
	if m := stream.receive(); m.GetId() != 7 || briefError(m) != "8 "+status.Convert(errRefused).Message() {
		t.Errorf("stream: %v", m)
	}
	for path, want := range map[string]string{checkPath: `{"code":8,"message":"overloaded: `, batchPath: `{"code":8,"message":"overloaded: `, "/auth": `"detail":"overloaded: `} {
		w := send(f.handler(t), http.MethodPost, path, "{")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), w.Body)
		}
	}
	if w := send(f.handler(t), http.MethodPost, "/json", `{"domain":"default","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`); w.Code != http.StatusTooManyRequests {
		t.Errorf("json: %d %s", w.Code, w.Body)
	}
	if n := f.shard.Len(); n > 0 {
		t.Errorf("%d counters", n)
	}
	if got := apitest.Checks(t, f.registry, "denied", "overloaded"); got != 8 {
		t.Errorf("%v counted, want 8", got)
	}
}

// weighing is an Overload that counts what calls have beyond one check.
type weighing struct {
	acceptAll
	further *atomic.Int64
}

func (w weighing) Add(_ context.Context, checks int) { w.further.Add(int64(checks)) }

// The checks of a batch are counted, on a stream as well.
func TestBatchesAreWeighed(t *testing.T) {
	f := newFixture(t, overloadRules)
	w := weighing{further: new(atomic.Int64)}
	f.overload = w
	f.check(t, "user=alice")
	if _, err := f.server().CheckRateLimitBatch(t.Context(), batchOf(5)); err != nil || w.further.Load() != 4 {
		t.Errorf("%d further checks of a batch of 5, %v", w.further.Load(), err)
	}
	stream := f.stream(t)
	stream.send(1, "user=bob", "user=bob", "user=bob")
	if stream.receive(); w.further.Load() != 6 {
		t.Errorf("%d further checks with three on a stream", w.further.Load())
	}
}
