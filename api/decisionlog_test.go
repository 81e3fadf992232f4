package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	rlscommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// record has f log decisions, and returns what ends that and returns the lines.
func (f *fixture) record(t testing.TB, which, keys string) func() []decisionlog.Line {
	t.Helper()
	var to bytes.Buffer
	log := decisionlog.New(decisionlog.Config{Node: "here", Which: which, Keys: keys, Share: 0.5, To: &to, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
	f.checks.Decisions = log
	return func() (lines []decisionlog.Line) {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
		d := json.NewDecoder(&to)
		d.DisallowUnknownFields()
		for {
			var line decisionlog.Line
			if err := d.Decode(&line); err == io.EOF {
				return lines
			} else if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
	}
}

const loggedRules = `
domain: default
rules:
  - {id: two, when: {endpoint: /two}, per: [user], limits: [{limit: 2, window: 1h}]}
  - {id: free, when: {user: root}, unlimited: true}
`

// Every API logs every check, with what was asked, what was told and what each limit said.
func TestEveryAPILogsItsChecks(t *testing.T) {
	f := newFixture(t, loggedRules)
	lines := f.record(t, decisionlog.All, decisionlog.Clear)
	conn, h := f.dial(t), f.handler(t)
	client := weirv1.NewRateLimiterClient(conn)
	ctx := t.Context()
	call := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	call(client.CheckRateLimit(ctx, request("user=alice endpoint=/two plan=gold")))
	call(client.CheckRateLimitBatch(ctx, &weirv1.RateLimitBatchRequest{Requests: []*weirv1.RateLimitRequest{
		request("user=alice endpoint=/two"), request("user=alice endpoint=/two"), request("user=root endpoint=/two"), request("user=bob domain=other"),
	}}))
	stream, err := client.StreamRateLimits(ctx)
	call(nil, err)
	call(nil, stream.Send(&weirv1.StreamRateLimitsRequest{Id: 1, Requests: []*weirv1.RateLimitRequest{request("user=carol endpoint=/two peek=1")}}))
	call(stream.Recv())
	if w := send(h, "POST", checkPath, `{"identifier":"dave","identifier_type":"user","endpoint":"/two","tokens_requested":3}`); w.Code != 429 {
		t.Fatalf("HTTP: %d %s", w.Code, w.Body)
	}
	if w := send(h, "GET", "/auth", ""); w.Code != 200 {
		t.Fatalf("/auth: %d %s", w.Code, w.Body)
	}
	if w := send(h, "POST", "/json", `{"domain":"default","descriptors":[{"entries":[{"key":"user","value":"erin"},{"key":"endpoint","value":"/two"}]}]}`); w.Code != 200 {
		t.Fatalf("/json: %d %s", w.Code, w.Body)
	}
	entries := func(user string) *rlscommon.RateLimitDescriptor {
		return &rlscommon.RateLimitDescriptor{Entries: []*rlscommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}, {Key: "endpoint", Value: "/two"}}}
	}
	call(rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
		Domain: "default", HitsAddend: 2, Descriptors: []*rlscommon.RateLimitDescriptor{entries("erin"), entries("frank")},
	}))
	var got []string
	for _, l := range lines() {
		text := fmt.Sprintf("%s %s %t %s", l.API, l.Domain, l.Allowed, l.Source)
		if l.Peek {
			text += " peek"
		}
		for _, d := range l.Descriptors {
			var names []string
			for _, e := range d.Entries {
				names = append(names, e.Key+"="+e.Value)
			}
			text += fmt.Sprintf(" | %s tokens=%d %t %s%s", strings.Join(names, " "), d.Tokens, d.Allowed, d.Source, d.Unlimited)
			for _, limit := range d.Limits {
				text += fmt.Sprintf(" %s[%d] %s %d/%v cost=%d %t left %d", limit.Rule, limit.Index, limit.Algorithm, limit.Limit, time.Duration(limit.Window), limit.Cost, limit.Allowed, limit.Remaining)
				if limit.At == 0 || len(limit.Counter) != 32 {
					t.Errorf("at %d, counter %q", limit.At, limit.Counter)
				}
			}
		}
		got = append(got, text)
		if l.Node != "here" || l.Version != decisionlog.Version || l.Time.IsZero() || l.RulesHash != f.checks.Rules().Hash() {
			t.Errorf("%+v", l)
		}
	}
	const two = "two[0] sliding_window 2/1h0m0s "
	want := []string{
		"check default true owner | user=alice endpoint=/two plan=gold tokens=1 true owner " + two + "cost=1 true left 1",
		"batch default true owner | user=alice endpoint=/two tokens=1 true owner " + two + "cost=1 true left 0",
		"batch default false owner | user=alice endpoint=/two tokens=1 false owner " + two + "cost=1 false left 0",
		"batch default true unlimited | user=root endpoint=/two tokens=1 true unlimitedfree",
		"batch other true no_rule | user=bob tokens=1 true no_rule",
		"stream default true owner peek | user=carol endpoint=/two tokens=1 true owner " + two + "cost=1 true left 1",
		"check default false owner | user=dave endpoint=/two tokens=3 false owner " + two + "cost=3 false left 2",
		"auth default true no_rule | ip=192.0.2.1 method=GET tokens=1 true no_rule",
		"envoy default true owner | user=erin endpoint=/two tokens=1 true owner " + two + "cost=1 true left 1",
		"envoy default false owner | user=erin endpoint=/two tokens=2 false owner " + two + "cost=2 false left 1" +
			" | user=frank endpoint=/two tokens=2 true owner " + two + "cost=2 true left 2",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// What is denied for want of time is logged as such, although the call ends with an error.
func TestOverloadIsLogged(t *testing.T) {
	f := newFixture(t, loggedRules)
	lines := f.record(t, decisionlog.Denied, decisionlog.Clear)
	f.source = shard.Overloaded
	if _, err := f.server().CheckRateLimit(t.Context(), request("user=alice endpoint=/two")); err == nil {
		t.Fatal("no error")
	}
	got := lines()
	if len(got) != 1 || got[0].Allowed || got[0].Source != "overloaded" || got[0].Descriptors[0].Limits[0].Source != "overloaded" {
		t.Errorf("%+v", got)
	}
}

// Of denied checks only, all lines are of those; hashed values are alike for equal values of a name, and tell nothing.
func TestDeniedAndHashed(t *testing.T) {
	f := newFixture(t, loggedRules)
	lines := f.record(t, decisionlog.Denied, decisionlog.Hashed)
	for range 4 {
		f.check(t, "user=alice endpoint=/two")
	}
	got := lines()
	if len(got) != 2 {
		t.Fatalf("%d lines", len(got))
	}
	first, second := got[0].Descriptors[0].Entries, got[1].Descriptors[0].Entries
	if got[0].Keys != "hashed" || first[0] != second[0] || first[0].Key != "user" || len(first[0].Value) != 32 || strings.Contains(fmt.Sprint(got), "alice") {
		t.Errorf("%+v", got)
	}
}

// Of a share of all counters, all checks of a counter are logged or none. Neither the API of a check matters nor whether it is allowed
// or denied, and the items of a batch are of counters of their own.
func TestSampledCountersAreLoggedWhole(t *testing.T) {
	f := newFixture(t, loggedRules)
	lines := f.record(t, decisionlog.Sampled, decisionlog.Clear)
	conn, h := f.dial(t), f.handler(t)
	client, envoy := weirv1.NewRateLimiterClient(conn), rlsv3.NewRateLimitServiceClient(conn)
	const users, perBatch = 2000, 20
	var requests []*weirv1.RateLimitRequest
	for i := range users {
		user := fmt.Sprint("user", i)
		f.check(t, "user="+user+" endpoint=/two")
		requests = append(requests, request("user="+user+" endpoint=/two"))
		if len(requests) == perBatch {
			if _, err := client.CheckRateLimitBatch(t.Context(), &weirv1.RateLimitBatchRequest{Requests: requests}); err != nil {
				t.Fatal(err)
			}
			requests = nil
		}
	}
	for i := range users {
		user := fmt.Sprint("user", i)
		if w := send(h, "POST", checkPath, `{"identifier":"`+user+`","identifier_type":"user","endpoint":"/two"}`); w.Code != 429 {
			t.Fatalf("%s is answered with %d %s", user, w.Code, w.Body)
		}
		answer, err := envoy.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "default", Descriptors: []*rlscommon.RateLimitDescriptor{
			{Entries: []*rlscommon.RateLimitDescriptor_Entry{{Key: "user", Value: user}, {Key: "endpoint", Value: "/two"}}},
		}})
		if err != nil || answer.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
			t.Fatalf("%s is answered with %v, %v", user, answer, err)
		}
	}
	logged, ofUser := make(map[string]string), make(map[string]string)
	for _, l := range lines() {
		counter := l.Descriptors[0].Limits[0].Counter
		logged[counter] += fmt.Sprintf("%s %t ", l.API, l.Allowed)
		ofUser[counter] = l.Descriptors[0].Entries[0].Value
	}
	for counter, got := range logged {
		if want := "check true batch true check false envoy false "; got != want {
			t.Errorf("of %s there is %q in the log, want %q", ofUser[counter], got, want)
		}
	}
	if n := len(logged); n < 866 || n > 1134 { // six standard deviations
		t.Errorf("%d of %d counters are logged, want half of them", n, users)
	}
}

const replayedRules = `
domain: default
rules:
  - {id: sliding, when: {endpoint: /a}, per: [user], limits: [{limit: 5, window: 10s}, {limit: 9, window: 1m, algorithm: fixed_window}]}
  - {id: bucket, when: {endpoint: /a}, per: [plan], limits: [{limit: 20, window: 10s, burst: 7, algorithm: token_bucket}]}
  - {id: gcra, when: {endpoint: /b}, per: [user], limits: [{limit: 6, window: 9s, algorithm: gcra}]}
  - {id: leaky, when: {endpoint: /b}, per: [plan], max_delay: 3s, limits: [{limit: 30, window: 10s, algorithm: leaky_bucket}]}
  - {id: log, when: {endpoint: /c}, per: [user], limits: [{limit: 6, window: 7s, algorithm: sliding_window_log}]}
  - {id: buckets, when: {endpoint: /c}, per: [plan], limits: [{limit: 11, window: 7s, algorithm: sliding_window_buckets}]}
  - {id: watched, when: {endpoint: /c}, per: [user], enforce: 0, limits: [{limit: 2, window: 5s}]}
  - {id: monthly, when: {endpoint: /d}, per: [user], limits: [{limit: 40, window: {calendar: month}, algorithm: fixed_window}]}
`

// The algorithms decide every line of a log as the node has.
func TestLogReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, replayedRules)
		lines := f.record(t, decisionlog.All, decisionlog.Hashed)
		r := rand.New(rand.NewPCG(1, 2))
		const checks = 3000
		for range checks {
			time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
			text := fmt.Sprintf("user=u%d plan=p%d endpoint=/%c cost=%d", r.IntN(4), r.IntN(2), 'a'+rune(r.IntN(4)), 1+r.IntN(3))
			if r.IntN(10) == 0 {
				text += " peek=1"
			} else if r.IntN(10) == 0 {
				text = strings.Replace(text, "cost=", "cost=-", 1)
			}
			f.check(t, text)
		}
		p := replay{states: make(map[string]*counter)}
		denied := 0
		got := lines()
		for i := range got {
			p.play(t, &got[i])
			if !got[i].Allowed {
				denied++
			}
		}
		if len(got) != checks || denied < checks/10 || denied > checks*9/10 {
			t.Errorf("%d lines, %d denied", len(got), denied)
		}
	})
}

// replay holds counters as the lines of a log have left them.
type replay struct{ states map[string]*counter }

type counter struct {
	state algorithms.State
	long  algorithms.Long
}

func (c *counter) step(l *algorithms.Limit, at, cost int64, commit bool) algorithms.Decision {
	if l.Algorithm.Long() {
		return c.long.Step(l, at, cost, commit)
	}
	next, d := algorithms.Step(l, c.state, at, cost)
	if commit {
		c.state = next
	}
	return d
}

// play decides a line, and counts it as the node has.
func (p replay) play(t *testing.T, line *decisionlog.Line) {
	t.Helper()
	allowed := true
	decide := func(commit, check bool) {
		for i := range line.Descriptors[0].Limits {
			l := &line.Descriptors[0].Limits[i]
			a, ok := algorithms.Parse(l.Algorithm)
			if !ok {
				t.Fatal(l.Algorithm)
			}
			limit := algorithms.Limit{Algorithm: a, Limit: l.Limit, Window: l.Window, Burst: l.Burst, MaxDelay: l.MaxDelay, Buckets: l.Buckets}
			if l.Calendar != "" {
				var err error
				if limit.Calendar, err = algorithms.ParseCalendar(l.Calendar); err != nil {
					t.Fatal(err)
				}
			}
			c := p.states[l.Counter]
			if c == nil {
				c = new(counter)
				p.states[l.Counter] = c
			}
			d := c.step(&limit, l.At, l.Cost, commit)
			if d.Allowed != l.Allowed {
				t.Errorf("%s: allowed %t in %+v", l.Rule, d.Allowed, line)
			}
			if check && (d.Remaining != l.Remaining || d.ResetAt != l.ResetAt || d.Delay != l.Delay) {
				t.Errorf("%s: %+v in %+v", l.Rule, d, line)
			}
			allowed = allowed && (d.Allowed || l.Shadow)
		}
	}
	decide(false, line.Peek && line.Allowed)
	if allowed != line.Allowed {
		t.Errorf("allowed %t in %+v", allowed, line)
	}
	if allowed && !line.Peek {
		decide(true, true)
	}
}

// BenchmarkDecisionLog is a check of one limit, without a log, with one that no check is for, and with one for all.
func BenchmarkDecisionLog(b *testing.B) {
	for _, which := range []string{"off", decisionlog.Denied, decisionlog.All} {
		b.Run(which, func(b *testing.B) {
			f := newFixture(b, benchRules)
			if which != "off" {
				log := decisionlog.New(decisionlog.Config{Node: "here", Which: which, Keys: decisionlog.Hashed, To: io.Discard, Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler)})
				defer func() { _ = log.Close() }()
				f.checks.Decisions = log
			}
			benchmark(b, f.Limiter.check, request("user=alice endpoint=/one"))
		})
	}
}
