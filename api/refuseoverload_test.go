package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/api/internal/check"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/overload"
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

// crowdedThere is a Decider whose owners have no time for batches; it records how many takes were shown, and how many times as many the batch has.
type crowdedThere struct {
	Decider
	asked *[]int
}

func (d crowdedThere) HasTime(takes []shard.Take, times int) bool {
	*d.asked = append(*d.asked, len(takes), times)
	return false
}

// A batch for which owners have no time is refused before anything of it is counted. Small ones are not worth the look.
func TestCrowdedBatch(t *testing.T) {
	f := newFixture(t, overloadRules)
	var asked []int
	f.checks.Decider = crowdedThere{Decider: f, asked: &asked}
	turned := &countsTurnedAway{}
	f.overload = turned
	batch := func(n int) error {
		var all weirv1.RateLimitBatchRequest
		for i := range n {
			all.Requests = append(all.Requests, request(fmt.Sprint("user=", i)))
		}
		_, err := f.server().CheckRateLimitBatch(t.Context(), &all)
		return err
	}
	if err := batch(2*sample - 1); err != nil || len(asked) > 0 {
		t.Errorf("a small batch: %v, asked about %v", err, asked)
	}
	before := f.shard.Len()
	err := batch(2 * sample)
	if !errors.Is(err, errCrowded) || !slices.Equal(asked, []int{sample, 2}) {
		t.Errorf("%v, asked about %v", err, asked)
	}
	if n := f.shard.Len() - before; n != 0 || turned.n != 2*sample || apitest.Checks(t, f.registry, "denied", "overloaded") != 2*sample {
		t.Errorf("%d counters, %d turned away, %v counted; want none, and all checks of the batch", n, turned.n, apitest.Checks(t, f.registry, "denied", "overloaded"))
	}
}

type countsTurnedAway struct {
	acceptAll
	n int
}

func (o *countsTurnedAway) TurnAway(_ context.Context, checks int) { o.n += checks }

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

func (noTime) Accept(ctx context.Context, _ overload.Origin) (context.Context, bool) {
	return ctx, false
}
func (noTime) Admit(context.Context, overload.Rules, string, int) bool { return false }

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

// admissions is an Overload that has time for all calls, and records what they ask for.
type admissions struct {
	acceptAll
	mu   *sync.Mutex
	told *[]string // guarded by mu
}

func (a admissions) Admit(ctx context.Context, rules overload.Rules, domain string, checks int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, begun := ctx.Value(begunKey{}).(bool)
	*a.told = append(*a.told, fmt.Sprintf("%s with rules %v, %d checks, begun %v", domain, rules.HasDomain(domain), checks, begun))
	return true
}

type begunKey struct{}

func (a admissions) Accept(ctx context.Context, _ overload.Origin) (context.Context, bool) {
	return context.WithValue(ctx, begunKey{}, true), true
}

func (a admissions) Began(ctx context.Context, _ overload.Origin) context.Context {
	return context.WithValue(ctx, begunKey{}, true)
}

// Every way to ask says which domain it asks for, and for how many checks, with the context with which the call has begun.
func TestCallsNameTheirDomain(t *testing.T) {
	f := newFixture(t, overloadRules)
	a := admissions{mu: new(sync.Mutex), told: new([]string)}
	f.overload, f.tap = a, f.Limiter.Tap
	conn := f.dial(t)
	limiter := weirv1.NewRateLimiterClient(conn)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := limiter.CheckRateLimit(t.Context(), request("user=alice"))
	must(err)
	other := batchOf(5)
	other.Requests[0].Domain = "other"
	_, err = limiter.CheckRateLimitBatch(t.Context(), other)
	must(err)
	stream := f.stream(t)
	stream.send(1, "user=bob", "user=bob", "user=bob")
	stream.receive()
	_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{
		Domain: "envoys", Descriptors: apitest.Descriptors("user=alice", "user=bob"),
	})
	must(err)
	for path, body := range map[string]string{
		checkPath: `{"identifier_type":"user","identifier":"alice","domain":"over-http"}`, "/auth/proxies": "",
		"/json": `{"domain":"in-json","descriptors":[{"entries":[{"key":"user","value":"a"}]}]}`,
	} {
		if w := send(f.handler(t), http.MethodPost, path, body); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	slices.Sort(*a.told)
	want := []string{
		"default with rules true, 1 checks, begun true", "default with rules true, 3 checks, begun true",
		"envoys with rules false, 2 checks, begun true", "in-json with rules false, 1 checks, begun true",
		"other with rules false, 5 checks, begun true", "over-http with rules false, 1 checks, begun true",
		"proxies with rules false, 1 checks, begun true",
	}
	if !slices.Equal(*a.told, want) {
		t.Errorf("admitted:\n%s\nwant:\n%s", strings.Join(*a.told, "\n"), strings.Join(want, "\n"))
	}
}

// refusesRead is an Overload that has no time for calls once they are read.
type refusesRead struct{ acceptAll }

func (refusesRead) Admit(context.Context, overload.Rules, string, int) bool { return false }

// Calls that are refused once they are read get the answers of others, and are counted as they are. Those that their caller may not make
// are no demand of their domain.
func TestCallsAreRefusedOnceRead(t *testing.T) {
	f := newFixture(t, overloadRules)
	f.overload = refusesRead{}
	_, check := f.server().CheckRateLimit(t.Context(), request("user=alice"))
	_, batch := f.server().CheckRateLimitBatch(t.Context(), batchOf(5))
	for _, err := range []error{check, batch} {
		if !errors.Is(err, errRefused) {
			t.Error(err)
		}
	}
	if w := send(f.handler(t), http.MethodPost, "/auth", ""); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("auth: %d %v %s", w.Code, w.Header(), w.Body)
	}
	_, err := f.server().CheckRateLimit(t.Context(), request("user="))
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("an invalid one: %v", err)
	}
	if got := apitest.Checks(t, f.registry, "denied", "overloaded"); got != 3 {
		t.Errorf("%v counted, want 3", got)
	}
	if n := f.shard.Len(); n > 0 {
		t.Errorf("%d counters", n)
	}
}

// The connection of a call is told by its own value, and what it remembers of domains stays with it.
func TestOriginOfCalls(t *testing.T) {
	f := newFixture(t, overloadRules)
	type origin struct {
		conn *overload.Conn
		id   any
	}
	var origins []origin
	f.overload = watchesOrigins{each: func(ctx context.Context, from overload.Origin) {
		conn, id := from(ctx)
		origins = append(origins, origin{conn, id})
	}}
	f.tap = f.Limiter.Tap
	for range 2 {
		limiter := weirv1.NewRateLimiterClient(f.dial(t))
		for range 2 {
			if _, err := limiter.CheckRateLimit(t.Context(), request("user=alice")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(origins) != 4 || origins[0].conn == nil || origins[0] != origins[1] || origins[2] != origins[3] ||
		origins[0].conn == origins[2].conn || origins[0].id == origins[2].id {
		t.Errorf("over gRPC: %v", origins)
	}
	origins = nil
	conn, _ := net.Pipe()
	handler, ctx := f.handler(t), connContext(t.Context(), conn)
	for major := 1; major <= 2; major++ {
		for range 2 {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/auth", http.NoBody)
			r.ProtoMajor = major
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	if len(origins) != 4 || origins[0].conn == nil || origins[0] != origins[1] || origins[3].conn != origins[0].conn || origins[2].id == origins[3].id {
		t.Errorf("over HTTP: %v", origins)
	}
}

// watchesOrigins is an Overload that accepts all calls, and passes on their origins.
type watchesOrigins struct {
	acceptAll
	each func(context.Context, overload.Origin)
}

func (o watchesOrigins) Accept(ctx context.Context, from overload.Origin) (context.Context, bool) {
	o.each(ctx, from)
	return ctx, true
}

func (o watchesOrigins) Began(ctx context.Context, from overload.Origin) context.Context {
	o.each(ctx, from)
	return ctx
}
