package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/tracing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// metricsOf returns the metrics of a name, by the values of their labels with spaces in between.
func metricsOf(t *testing.T, from prometheus.Gatherer, name string) map[string]*dto.Metric {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]*dto.Metric)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			found[strings.Join(values, " ")] = m
		}
	}
	return found
}

// Calls are counted by what became of them, with how long they took: over gRPC those that are no checks, over HTTP all.
func TestCallsAreMeasured(t *testing.T) {
	f := newFixture(t, inputRules)
	f.status.Current = newView(t, 3, "a", "b")
	conn := f.dial(t)
	cluster := weirv1.NewClusterClient(conn)
	for range 2 {
		if _, err := cluster.GetRing(t.Context(), &weirv1.GetRingRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cluster.DrainNode(t.Context(), &weirv1.DrainNodeRequest{NodeId: "no such"}); err == nil {
		t.Fatal("another node was drained")
	}
	limiter := weirv1.NewRateLimiterClient(conn)
	if _, err := limiter.CheckRateLimit(t.Context(), request("user=alice")); err != nil {
		t.Fatal(err)
	}
	if _, err := limiter.ExplainRateLimit(t.Context(), request("user=alice")); err != nil {
		t.Fatal(err)
	}
	if _, err := limiter.GetRateLimitStatus(t.Context(), &weirv1.RateLimitStatusRequest{}); err == nil {
		t.Fatal("the status of nothing is told")
	}
	watch, err := weirv1.NewRateLimiterConfigClient(conn).WatchRules(t.Context(), &weirv1.WatchRulesRequest{Domain: strings.Repeat("x", maxKey+1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Fatalf("a domain that is too long: %v", err)
	}
	h := f.handler(t)
	for _, call := range []struct{ method, path, body string }{
		{http.MethodGet, "/v1/nodes", ""}, {http.MethodPost, checkPath, goodBody}, {http.MethodPost, checkPath, "{"},
		{http.MethodGet, "/v1/rules/default/none", ""}, {http.MethodGet, "/no/such/path", ""}, {http.MethodGet, "/no/such/other", ""},
	} {
		send(h, call.method, call.path, call.body)
	}
	want := map[string]uint64{
		"Cluster.GetRing OK": 2, "RateLimiter.ExplainRateLimit OK": 1, "RateLimiterConfig.WatchRules InvalidArgument": 1, "RateLimiter.GetRateLimitStatus InvalidArgument": 1, "Cluster.DrainNode InvalidArgument": 1, "GET /v1/nodes 200": 1, "POST /v1/check 200": 1, "POST /v1/check 400": 1,
		"GET /v1/rules/{domain}/{id...} 404": 1, "other 404": 2,
	}
	got := metricsOf(t, f.registry, "weir_calls_total")
	for labels, n := range want {
		if calls := got[labels].GetCounter().GetValue(); calls != float64(n) {
			t.Errorf("%s: %v calls, want %d", labels, calls, n)
		}
		delete(got, labels)
	}
	if len(got) > 0 {
		t.Errorf("more calls: %v", got)
	}
	durations := metricsOf(t, f.registry, "weir_call_duration_seconds")
	if n := durations["POST /v1/check"].GetHistogram().GetSampleCount(); n != 2 {
		t.Errorf("%d durations of checks over HTTP, want 2", n)
	}
	if n := durations["Cluster.GetRing"].GetHistogram().GetSampleCount(); n != 2 {
		t.Errorf("%d durations of GetRing, want 2", n)
	}
}

// A request is counted under a pattern of needs or as other, for every path.
func TestCallsHaveKnownLabels(t *testing.T) {
	f := newFixture(t, inputRules)
	h := f.handler(t)
	f.calls.paths.Handle("GET /no/such/{path}", http.NotFoundHandler()) // a mux that knows more than needs
	for _, path := range []string{"/v1/rules/x", "/v1/rules/%ff", "/no/such/path", "/no/such/%ff", "/%ff"} {
		send(h, http.MethodGet, path, "")
	}
	send(h, http.MethodConnect, "/v1/rules/x", "")
	calls := 0.0
	for labels, m := range metricsOf(t, f.registry, "weir_calls_total") {
		call := labels[:strings.LastIndexByte(labels, ' ')]
		if _, known := needs[call]; !known && call != otherCall {
			t.Errorf("a request is counted as %q", call)
		}
		calls += m.GetCounter().GetValue()
	}
	if calls != 6 {
		t.Errorf("%v calls, want 6", calls)
	}
}

// A call that is traced leaves the id of its trace in the histogram of its API; others leave none.
func TestDurationsHaveTraces(t *testing.T) {
	f := newFixture(t, inputRules)
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(discard{}))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	f.checks.Tracing = tracing.New(provider, 0)
	exemplars := func() (ids []string) {
		t.Helper()
		for _, b := range metricsOf(t, f.registry, "weir_check_duration_seconds")["check"].GetHistogram().GetBucket() {
			for _, label := range b.GetExemplar().GetLabel() {
				ids = append(ids, label.GetName()+"="+label.GetValue())
			}
		}
		return ids
	}
	f.check(t, "user=alice")
	if ids := exemplars(); len(ids) > 0 {
		t.Errorf("a call that is not traced leaves %v", ids)
	}
	const id = "0123456789abcdef0123456789abcdef"
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-"+id+"-00000000000000aa-01"))
	if _, err := f.server().CheckRateLimit(ctx, request("user=alice")); err != nil {
		t.Fatal(err)
	}
	if ids := exemplars(); len(ids) != 1 || ids[0] != "trace_id="+id {
		t.Errorf("exemplars %v, want that of %s", ids, id)
	}
}

// With tracing on, a call over gRPC that its caller traces leaves the id of that trace in the histogram of calls.
func TestCallDurationsHaveTraces(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, tc := range []struct {
		traced bool
		flags  string // of the caller
		want   string
	}{{true, "01", id}, {true, "00", ""}, {false, "01", ""}} {
		f := newFixture(t, inputRules)
		f.status.Current, f.calls.traced = newView(t, 3, "a", "b"), tc.traced
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+id+"-00000000000000aa-"+tc.flags)
		if _, err := weirv1.NewClusterClient(f.dial(t)).GetRing(ctx, &weirv1.GetRingRequest{}); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, e := range metricsOf(t, f.registry, "weir_call_duration_seconds")["Cluster.GetRing"].GetHistogram().GetExemplars() {
			got += e.GetLabel()[0].GetValue()
		}
		if got != tc.want {
			t.Errorf("traced %t, flags %s: the exemplar is %q, want %q", tc.traced, tc.flags, got, tc.want)
		}
	}
}

// A writer that cannot flush says so to those that ask.
func TestRecorderFlushes(t *testing.T) {
	var plain struct{ http.ResponseWriter }
	if err := http.NewResponseController(&answerRecorder{ResponseWriter: plain}).Flush(); !errors.Is(err, http.ErrNotSupported) {
		t.Errorf("a writer without Flush: %v", err)
	}
	w := httptest.NewRecorder()
	a := &answerRecorder{ResponseWriter: w, code: http.StatusOK}
	a.Flush()
	if a.WriteHeader(http.StatusTeapot); !w.Flushed || !a.flushed || a.code != http.StatusOK {
		t.Errorf("flushed: %v, %v, code %d", w.Flushed, a.flushed, a.code)
	}
}

// BenchmarkCallMetrics is a check over HTTP without the network, measured once as servers do it, and once more: the difference is
// what measuring costs.
func BenchmarkCallMetrics(b *testing.B) {
	f := newFixture(b, "domain: default\nrules: [{id: r, per: [user], limits: [{limit: 1000000000, window: 1d}]}]\n")
	once := f.handler(b)
	for _, tc := range []struct {
		name    string
		handler http.Handler
	}{{"once", once}, {"twice", f.calls.handler(once)}} {
		b.Run(tc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := send(tc.handler, http.MethodPost, checkPath, goodBody); w.Code != http.StatusOK {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
