package api

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const checkRules = `
domain: default
rules:
  - {id: posts, when: {endpoint: /posts}, per: [user], limits: [{limit: 10, window: 10s}]}
  - {id: fast, when: {endpoint: /fast}, per: [user], limits: [{limit: 2, window: 100ms}]}
  - {id: closed, when: {endpoint: /closed}, limits: [{limit: 0, window: 1s}]}
  - {id: both, when: {endpoint: /both}, per: [user], limits: [{limit: 3, window: 1s}, {limit: 5, window: 1h}]}
  - {id: wide, when: {endpoint: /pair}, per: [user], limits: [{limit: 4, window: 1m}]}
  - {id: same, when: {endpoint: /pair}, per: [user], limits: [{limit: 4, window: 1m}]}
  - {id: top, when: {endpoint: /top}, limits: [{limit: 2147483648, window: 366d}]}
  - {id: method, when: {endpoint: /m, method: GET}, per: [tenant], limits: [{limit: 1, window: 1m}]}
  - {id: bare, when: {endpoint: {absent: true}, kind: bare}, limits: [{limit: 8, window: 1m}]}
---
domain: shop
rules:
  - {id: posts-of-shop, when: {endpoint: /posts}, per: [user], limits: [{limit: 1, window: 1m}]}
`

// step is one request of a story, at its time since the story began. A token taken
// at the edge of a window weighs whole until just after the window's end, hence the
// odd nanosecond.
type step struct {
	at      time.Duration
	request string
	want    string
}

func (f *fixture) play(t *testing.T, steps []step) {
	start := time.Now()
	for _, s := range steps {
		time.Sleep(s.at - time.Since(start))
		if got := brief(f.check(t, s.request)); got != s.want {
			t.Errorf("after %v, %s\ngot  %s\nwant %s", s.at, s.request, got, s.want)
		}
	}
}

func TestCheckRateLimit(t *testing.T) {
	const ms = time.Millisecond
	for name, steps := range map[string][]step{
		"one limit": {
			{0, "user=a endpoint=/posts cost=4", "allowed owner posts 10/10s left 6 reset 18 17.500000001s"},
			{0, "user=a endpoint=/posts", "allowed owner posts 10/10s left 5 reset 19 18.000000001s"},
			{0, "user=a endpoint=/posts cost=5 peek", "allowed owner posts 10/10s left 0 reset 20 19.000000001s"},
			{0, "user=a endpoint=/posts cost=6", "denied owner posts 10/10s left 5 reset 19 18.000000001s retry 11 10.000000001s"},
			{0, "user=a endpoint=/posts cost=6 peek", "denied owner posts 10/10s left 5 reset 19 18.000000001s retry 11 10.000000001s"},
			{0, "user=a endpoint=/posts cost=11", "denied owner posts 10/10s left 5 reset 19 18.000000001s"},
			{1 * ms, "user=a endpoint=/posts cost=5", "allowed owner posts 10/10s left 0 reset 20 18.999000001s"},
			{1 * ms, "user=a endpoint=/posts", "denied owner posts 10/10s left 0 reset 20 18.999000001s retry 10 9.999000001s"},
			{1 * ms, "user=b endpoint=/posts", "allowed owner posts 10/10s left 9 reset 11 9.999000001s"},
			{11_499 * ms, "user=a endpoint=/posts cost=2", "allowed owner posts 10/10s left 0 reset 26 13.501000001s"},
			{11_500 * ms, "user=a endpoint=/posts", "denied owner posts 10/10s left 0 reset 26 13.500000001s retry 1 500.000001ms"},
			{30_000 * ms, "user=a endpoint=/posts peek", "allowed owner posts 10/10s left 9 reset 41 10.000000001s"},
		},
		"a window below a second": {
			{0, "user=a endpoint=/fast cost=2", "allowed owner fast 2/100ms left 0 reset 1 150.000001ms"},
			{0, "user=a endpoint=/fast", "denied owner fast 2/100ms left 0 reset 1 150.000001ms retry 1 100.000001ms"},
			{100 * ms, "user=a endpoint=/fast", "denied owner fast 2/100ms left 0 reset 1 50.000001ms retry 1 1ns"},
			{151 * ms, "user=a endpoint=/fast", "allowed owner fast 2/100ms left 1 reset 1 49.000001ms"},
		},
		"bounds": {
			{0, "user=a endpoint=/closed", "denied owner closed 0/1s left 0 reset 0 0s"},
			{0, "user=a endpoint=/top cost=2147483648", "allowed owner top 2147483648/8784h0m0s left 0 reset 33609600 9335h59m59.985274673s"},
			{0, "user=a endpoint=/top", "denied owner top 2147483648/8784h0m0s left 0 reset 33609600 9335h59m59.985274673s retry 1987201 552h0m0.000000001s"},
		},
		"several limits": {
			{0, "user=a endpoint=/both", "allowed owner both 3/1s left 2 reset 2 1.000000001s"},
			{0, "user=a endpoint=/both cost=2", "allowed owner both 3/1s left 0 reset 2 1.666666667s"},
			{0, "user=a endpoint=/both", "denied owner both 3/1s left 0 reset 2 1.666666667s retry 2 1.000000001s"},
			{2000 * ms, "user=a endpoint=/both", "allowed owner both 5/1h0m0s left 1 reset 6301 1h44m58.000000001s"},
			{2000 * ms, "user=a endpoint=/both cost=2", "denied owner both 5/1h0m0s left 1 reset 6301 1h44m58.000000001s retry 3599 59m58.000000001s"},
			{2000 * ms, "user=a endpoint=/both cost=4", "denied owner both 3/1s left 2 reset 4 1.000000001s"},
			{2000 * ms, "user=a endpoint=/both cost=6", "denied owner both 5/1h0m0s left 1 reset 6301 1h44m58.000000001s"},
			{2000 * ms, "user=a endpoint=/both peek", "allowed owner both 5/1h0m0s left 0 reset 6481 1h47m58.000000001s"},
			{2000 * ms, "user=a endpoint=/pair", "allowed owner wide 4/1m0s left 3 reset 61 58.000000001s"},
		},
		"which rules": {
			{0, "user=a", "allowed no_rule"},
			{0, "ip=10.0.0.1 endpoint=/posts", "allowed no_rule"},
			{0, "user=a endpoint=/posts domain=other", "allowed no_rule"},
			{0, "user=a endpoint=/posts domain=shop", "allowed owner posts-of-shop 1/1m0s left 0 reset 61 1m0.000000001s"},
			{0, "user=a endpoint=/posts domain=default", "allowed owner posts 10/10s left 9 reset 11 10.000000001s"},
			{0, "user=a endpoint=/m method=GET tenant=x", "allowed owner method 1/1m0s left 0 reset 61 1m0.000000001s"},
			{0, "tenant=x endpoint=/m method=GET user=b", "denied owner method 1/1m0s left 0 reset 61 1m0.000000001s retry 61 1m0.000000001s"},
			{0, "tenant=x endpoint=/m method=PUT", "allowed no_rule"},
			{0, "tenant=x endpoint=/m", "allowed no_rule"},
			{0, "kind=bare endpoint=/none", "allowed no_rule"},
			{0, "kind=bare", "allowed owner bare 8/1m0s left 7 reset 61 1m0.000000001s"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newFixture(t, checkRules).play(t, steps) })
		})
	}
}

func TestFailOpen(t *testing.T) {
	for name, tc := range map[string]struct {
		silent func(shard.Take) bool
		steps  []step
	}{
		"no answer": {func(shard.Take) bool { return true }, []step{
			{0, "user=a endpoint=/posts", "allowed fail_open posts 10/10s"},
			{0, "user=a endpoint=/closed", "allowed fail_open closed 0/1s"},
			{0, "user=a endpoint=/both", "allowed fail_open both 3/1s"},
			{0, "user=a endpoint=/posts peek", "allowed fail_open posts 10/10s"},
			{0, "user=a", "allowed no_rule"},
		}},
		"of two limits, the hour's is not answered": {func(take shard.Take) bool { return take.Limit.Limit == 5 }, []step{
			{0, "user=a endpoint=/both cost=3", "allowed fail_open both 5/1h0m0s"},
			{0, "user=a endpoint=/both", "denied owner both 3/1s left 0 reset 2 1.666666667s retry 2 1.000000001s"},
			{0, "user=a endpoint=/both cost=4", "denied owner both 3/1s left 0 reset 2 1.666666667s"},
			{0, "user=a endpoint=/posts", "allowed owner posts 10/10s left 9 reset 11 10.000000001s"},
		}},
		"of two limits, the second's is not answered": {func(take shard.Take) bool { return take.Limit.Limit == 3 }, []step{
			{0, "user=a endpoint=/both cost=5", "allowed fail_open both 3/1s"},
			{0, "user=a endpoint=/both", "denied owner both 5/1h0m0s left 0 reset 6481 1h48m0.000000001s retry 3601 1h0m0.000000001s"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, checkRules)
				f.silent = tc.silent
				f.play(t, tc.steps)
			})
		})
	}
}

func TestBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		f.silent = func(take shard.Take) bool { return take.Limit.Limit == 2 }
		batch := &weirv1.RateLimitBatchRequest{}
		var wants []string
		for _, item := range [][2]string{
			{"user=a endpoint=/posts cost=9", "allowed owner posts 10/10s left 1 reset 19 18.888888889s"},
			{"user=a endpoint=/both", "allowed owner both 3/1s left 2 reset 2 1.000000001s"},
			{"user=a", "allowed no_rule"},
			{"user=a endpoint=/posts cost=2", "denied owner posts 10/10s left 1 reset 19 18.888888889s retry 11 10.000000001s"},
			{"user=a endpoint=/posts peek", "allowed owner posts 10/10s left 0 reset 20 19.000000001s"},
			{"user=a endpoint=/fast", "allowed fail_open fast 2/100ms"},
			{"user=a endpoint=/posts", "allowed owner posts 10/10s left 0 reset 20 19.000000001s"},
			{"user=a endpoint=/posts domain=shop", "allowed owner posts-of-shop 1/1m0s left 0 reset 61 1m0.000000001s"},
		} {
			batch.Requests = append(batch.Requests, request(item[0]))
			wants = append(wants, item[1])
		}
		resp, err := weirv1.NewRateLimiterClient(f.dial(t)).CheckRateLimitBatch(t.Context(), batch)
		if err != nil || len(resp.GetResponses()) != len(wants) {
			t.Fatalf("%d responses, %v", len(resp.GetResponses()), err)
		}
		for i, r := range resp.GetResponses() {
			if got := brief(r); got != wants[i] {
				t.Errorf("item %d\ngot  %s\nwant %s", i, got, wants[i])
			}
		}
	})
}

// A call whose caller has gone is not decided.
func TestCallsOfGoneCallers(t *testing.T) {
	f := newFixture(t, checkRules)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, check := f.server().CheckRateLimit(ctx, request("user=alice endpoint=/posts"))
	_, batch := f.server().CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{request("user=alice endpoint=/posts")}})
	if status.Code(check) != codes.Canceled || status.Code(batch) != codes.Canceled || f.shard.Len() > 0 {
		t.Errorf("%v, %v, %d counters", check, batch, f.shard.Len())
	}
}
