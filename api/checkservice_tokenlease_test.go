package api

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const leaseRules = `
domain: default
rules:
  - {id: plain, when: {endpoint: /plain}, per: [user], limits: [{limit: 801, window: 1m, algorithm: fixed_window}]}
  - {id: both, when: {endpoint: /both}, limits: [{limit: 8000, window: 1h}, {limit: 801, window: 1m, algorithm: fixed_window}]}
  - {id: costly, when: {endpoint: /costly}, limits: [{limit: 803, window: 1m}], cost: 3}
  - {id: sized, when: {endpoint: /sized}, limits: [{limit: 8000, window: 1m}], cost: size}
  - {id: soft, when: {endpoint: /soft}, limits: [{limit: 800, window: 1m}], mode: {soft: {over: 10%}}}
  - {id: tried, when: {endpoint: /tried}, limits: [{limit: 800, window: 1m}], enforce: 0}
  - {id: queue, when: {endpoint: /queue}, limits: [{limit: 800, window: 1m, algorithm: leaky_bucket}]}
  - {id: closed, when: {endpoint: /closed}, limits: [{limit: 0, window: 1m}]}
  - {id: vip, when: {user: boss}, unlimited: true}
`

func lease(f *fixture, t *testing.T, text string, tokens int64) *weirv1.RateLimitResponse {
	t.Helper()
	req := request(text)
	req.Lease = tokens
	resp, err := f.server().CheckRateLimit(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func TestLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, leaseRules)
		time.Sleep(20 * time.Second)
		for _, tc := range []struct {
			request         string
			asked           int64
			lent, remaining int64
		}{
			{"user=a endpoint=/plain", 40, 40, 760},
			{"user=b endpoint=/plain", 1_000_000, 100, 700},
			{"user=c endpoint=/plain cost=5", 1_000_000, 99, 697},
			{"user=c endpoint=/plain", 0, 0, 696},
			{"user=a endpoint=/both", 1_000_000, 100, 700},
			{"user=a endpoint=/costly", 1_000_000, 33, 701},
			{"user=a endpoint=/sized size=2 cost=3", 10, 10, 7974},
			{"user=a endpoint=/soft", 10, 0, 799},
			{"user=a endpoint=/tried", 10, 0, 799},
			{"user=a endpoint=/queue", 10, 0, 799},
			{"user=a endpoint=/closed", 10, 0, 0},
			{"user=a endpoint=/free", 10, 0, 0},
			{"user=boss endpoint=/free", 10, 0, 0},
		} {
			resp := lease(f, t, tc.request, tc.asked)
			l := resp.GetLease()
			if l.GetTokens() != tc.lent || int64(resp.GetRemainingTokens()) != tc.remaining || (l == nil) != (tc.lent == 0) {
				t.Errorf("%s: lent %v, %d remaining, want %d and %d", tc.request, l, resp.GetRemainingTokens(), tc.lent, tc.remaining)
			}
			if l == nil {
				continue
			}
			if d := l.GetValidFor().AsDuration(); d > 40*time.Second || d < 39*time.Second || l.GetDebitedAt() != time.Now().UnixNano() {
				t.Errorf("%s: %v", tc.request, l)
			}
		}
	})
}

func TestLeaseOfABatch(t *testing.T) {
	f := newFixture(t, leaseRules)
	batch := &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		request("user=boss endpoint=/plain"), request("user=a endpoint=/soft"), request("user=a endpoint=/plain"), request("user=b endpoint=/plain"),
	}}
	for i, r := range batch.GetRequests() {
		r.Lease = int64(10 * (i + 1))
	}
	resp, err := f.server().CheckRateLimitBatch(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{0, 0, 30, 40} {
		if got := resp.GetResponses()[i].GetLease().GetTokens(); got != want {
			t.Errorf("request %d is lent %d, want %d", i, got, want)
		}
	}
}

// What is left is taken off the window of the lease, and of no other.
func TestLeaseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, leaseRules)
		for _, tc := range []struct {
			user string
			wait time.Duration
			left uint32
		}{{"in-time", 0, 800 - 10}, {"late", time.Minute, 801 - 50}} {
			l := lease(f, t, "user="+tc.user+" endpoint=/plain", 40).GetLease()
			time.Sleep(tc.wait)
			if tc.wait > 0 {
				f.check(t, "user="+tc.user+" endpoint=/plain cost=50")
			}
			back := request("user=" + tc.user + " endpoint=/plain cost=-30")
			back.DebitedAt = l.GetDebitedAt()
			resp, err := f.server().CheckRateLimit(t.Context(), back)
			if err != nil || !resp.GetAllowed() || resp.GetRemainingTokens() != tc.left {
				t.Errorf("%s: %v, %v, want %d left", tc.user, resp, err, tc.left)
			}
		}
	})
}

func TestLeasesAreRefused(t *testing.T) {
	f := newFixture(t, leaseRules)
	for want, spoil := range map[string]edit{
		"lease: -1 is not between 0 and 1000000":                                          func(r *weirv1.RateLimitRequest) { r.Lease = -1 },
		"lease: 1000001 is not between 0 and 1000000":                                     func(r *weirv1.RateLimitRequest) { r.Lease = 1_000_001 },
		"lease: 1 is asked for together with peek, or with tokens that are given back":    func(r *weirv1.RateLimitRequest) { r.Lease, r.Peek = 1, true },
		"lease: 2 is asked for together with peek, or with tokens that are given back":    func(r *weirv1.RateLimitRequest) { r.Lease, r.TokensRequested = 2, -1 },
		"debited_at: -1 is not 0, nor an instant at which tokens given back were debited": func(r *weirv1.RateLimitRequest) { r.DebitedAt, r.TokensRequested = -1, -1 },
		"debited_at: 1 is not 0, nor an instant at which tokens given back were debited":  func(r *weirv1.RateLimitRequest) { r.DebitedAt = 1 },
		"debited_at: 2 is not 0, nor an instant at which tokens given back were debited":  func(r *weirv1.RateLimitRequest) { r.DebitedAt, r.TokensRequested, r.Peek = 2, -1, true },
	} {
		req := request("user=alice endpoint=/plain")
		spoil(req)
		_, err := f.server().CheckRateLimit(t.Context(), req)
		refused(t, err, want)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused request was counted")
	}
}

// Not only the owner's answers tell the state of the counter.
func TestLeaseOfOtherSources(t *testing.T) {
	for s, want := range map[shard.Source]struct {
		wire weirv1.Source
		by   string
	}{
		shard.Lent:        {weirv1.Source_SOURCE_LENT, "lent"},
		shard.Relayed:     {weirv1.Source_SOURCE_RELAYED, "relayed"},
		shard.Provisional: {weirv1.Source_SOURCE_PROVISIONAL, "provisional"},
	} {
		f := newFixture(t, leaseRules)
		f.source = s
		resp := f.check(t, "user=a endpoint=/plain")
		if resp.GetSource() != want.wire || resp.GetRemainingTokens() != 800 || resp.GetResetAfter() == nil {
			t.Errorf("%v: %v", want.wire, resp)
		}
		if apitest.Checks(t, f.registry, "allowed", want.by) != 1 {
			t.Errorf("%v: it was not counted", want.wire)
		}
	}
}
