package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// collector is an OTLP receiver that keeps all spans.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracev1.Span
}

// Export implements collectorv1.TraceServiceServer.
func (c *collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// collect serves a collector until the test ends, and returns its URL.
func collect(t *testing.T) (*collector, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, server, done := new(collector), grpc.NewServer(), make(chan error, 1)
	collectorv1.RegisterTraceServiceServer(server, c)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c, "http://" + listener.Addr().String()
}

func attributesOf(s *tracev1.Span) map[string]string {
	m := make(map[string]string)
	for _, a := range s.GetAttributes() {
		v := a.GetValue()
		m[a.GetKey()] = v.GetStringValue()
		if v.GetStringValue() == "" {
			m[a.GetKey()] = strings.Trim(fmt.Sprint(v.GetValue()), "&{}") // a number
		}
	}
	return m
}

// forwarded returns how many checks a node has asked others for.
func forwarded(t *testing.T, info Info) (n float64) {
	t.Helper()
	resp, err := http.Get("http://" + info.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "weir_forwarded_total{") {
			value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
			if err != nil {
				t.Fatal(err)
			}
			n += value
		}
	}
	return n
}

// A caller's trace has the check, over gRPC and HTTP, and under it the hop to the owner on another node. What a caller
// does not trace has no span, and no attribute names the caller's user.
func TestTraceOfACheckAndItsHop(t *testing.T) {
	c, url := collect(t)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(oneAYear), 0o600); err != nil {
		t.Fatal(err)
	}
	first := testOptions(t)
	first.Rules, first.TraceEndpoint, first.TraceSample = rules, url, 1
	info, stop, ended := start(t, first)
	second := testOptions(t)
	second.ID, second.Rules, second.Etcd = "b", rules, []string{info.Etcd}
	_, stopSecond, secondEnded := start(t, second)

	conn, err := grpc.NewClient(info.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client := weirv1.NewRateLimiterClient(conn)
	// Partitions move one after the other: until many have, both nodes decide about few users there.
	for i, before, after := 0, 0.0, 0.0; after-before < 15; i++ {
		if i == 2000 {
			t.Fatal("hardly a check is forwarded")
		}
		before = forwarded(t, info)
		ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+strings.Repeat("f", 32)+"-00000000000000ff-00")
		for j := range 50 {
			if _, err := client.CheckRateLimit(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("warm", i, "-", j)}); err != nil {
				t.Fatal(err)
			}
		}
		after = forwarded(t, info)
	}
	const users = 40
	const parent = "00000000000000aa"
	traceID := func(kind byte, user int) string {
		return fmt.Sprintf("%02x0000000000000000000000000000%02x", kind, user)
	}
	for i := range users {
		for flags, kind := range map[string]byte{"01": 1, "00": 2} {
			ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+traceID(kind, i)+"-"+parent+"-"+flags)
			if _, err := client.CheckRateLimit(ctx, &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: fmt.Sprint("secret", i)}); err != nil {
				t.Fatal(err)
			}
		}
		body := fmt.Sprintf(`{"identifier_type":"user","identifier":"secret%d"}`, i)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+info.HTTP+"/v1/check", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Traceparent", "00-"+traceID(3, i)+"-"+parent+"-01")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	stopSecond()
	if err := <-secondEnded; err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil { // all spans are sent now
		t.Error(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	checks, hops := make(map[string]*tracev1.Span), 0
	for _, s := range c.spans {
		if s.GetName() == "weir.check" {
			checks[fmt.Sprintf("%x", s.GetTraceId())] = s
		}
		if strings.Contains(s.String(), "secret") {
			t.Errorf("a span names the user: %v", s)
		}
	}
	for i := range users {
		for _, kind := range []byte{1, 3} {
			s := checks[traceID(kind, i)]
			if s == nil || fmt.Sprintf("%x", s.GetParentSpanId()) != parent {
				t.Fatalf("trace %s: %v", traceID(kind, i), s)
			}
			if a := attributesOf(s); a["weir.api"] != "check" || a["weir.rule"] != "r" || a["weir.domain"] != "default" || a["weir.owner"] == "" || a["weir.source"] == "" {
				t.Errorf("attributes %v", a)
			}
		}
		if s := checks[traceID(2, i)]; s != nil {
			t.Errorf("a caller that does not trace has a span: %v", s)
		}
	}
	for _, s := range c.spans {
		if s.GetName() != "weir.hop" {
			continue
		}
		check := checks[fmt.Sprintf("%x", s.GetTraceId())]
		if a := attributesOf(s); check == nil || string(s.GetParentSpanId()) != string(check.GetSpanId()) || a["weir.peer"] != "b" || a["weir.role"] != "owner" || attributesOf(check)["weir.owner"] != "b" {
			t.Errorf("hop %v of %v", a, check)
		}
		hops++
	}
	if hops == 0 { // how many there are depends on how many partitions have moved
		t.Errorf("%d hops for %d users", hops, users)
	}
}

// An environment that is meant for other programs keeps no node from its work.
func TestCollectorOfTheEnvironment(t *testing.T) {
	for _, tc := range []struct {
		env               map[string]string
		endpoint, problem string
	}{
		{nil, "", ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, "http://c:4317", ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://t:4317"}, "https://t:4317", ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_SDK_DISABLED": "true"}, "", ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_TRACES_EXPORTER": "none"}, "", ""},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317"}, "", `OTEL_EXPORTER_OTLP_ENDPOINT: "c:4317" is not the URL of a collector`},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "", `OTEL_EXPORTER_OTLP_PROTOCOL is "http/protobuf"`},
	} {
		endpoint, problem := collectorOf(func(name string) string { return tc.env[name] })
		if endpoint != tc.endpoint || !strings.HasPrefix(problem, tc.problem) || problem != "" && tc.problem == "" {
			t.Errorf("%v: %q, %q", tc.env, endpoint, problem)
		}
	}
}
