package cluster

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// spanLines returns each span that has ended as "name role source" behind those that it belongs to, sorted.
func spanLines(t *testing.T, spans []sdktrace.ReadOnlySpan) (lines []string) {
	t.Helper()
	byID := make(map[trace.SpanID]sdktrace.ReadOnlySpan, len(spans))
	for _, s := range spans {
		byID[s.SpanContext().SpanID()] = s
	}
	for _, s := range spans {
		line := ""
		for at := s; at != nil; at = byID[at.Parent().SpanID()] {
			attributes := attribute.NewSet(at.Attributes()...)
			step := at.Name()
			for _, key := range []attribute.Key{"weir.role", "weir.source"} {
				if v, has := attributes.Value(key); has {
					step += " " + v.AsString()
				}
			}
			if line = step + " > " + line; at.Parent().IsValid() && byID[at.Parent().SpanID()] == nil {
				t.Errorf("%s belongs to a span that has not ended", line)
			}
		}
		lines = append(lines, line[:len(line)-len(" > ")])
	}
	slices.Sort(lines)
	return lines
}

// The node that decides, and each that asks another one for it, has a span under that of the hop that asked it.
func TestSpansOfNodesThatDecide(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails func(c *testCluster)
		ask   int
		want  []string
	}{
		{"owner", func(*testCluster) {}, 0, []string{
			"check", "check > weir.hop owner", "check > weir.hop owner > weir.decide owner owner",
		}},
		{"dead owner", func(c *testCluster) { c.kill(c.nodes[1]) }, 0, []string{
			"check", "check > weir.hop owner", "check > weir.hop standby", "check > weir.hop standby > weir.decide standby provisional",
			"check > weir.hop standby > weir.decide standby provisional > weir.hop owner",
			"check > weir.hop standby > weir.decide standby provisional > weir.hop owner",
		}},
		{"dead owner, asked of the standby", func(c *testCluster) { c.kill(c.nodes[1]) }, 2, []string{
			"check", "check > weir.decide standby provisional", "check > weir.hop owner",
		}},
		{"owner that the asker does not reach", func(c *testCluster) { c.cut(c.nodes[0], c.nodes[1]) }, 0, []string{
			"check", "check > weir.hop owner", "check > weir.hop standby", "check > weir.hop standby > weir.decide standby relayed",
			"check > weir.hop standby > weir.decide standby relayed > weir.hop owner",
			"check > weir.hop standby > weir.decide standby relayed > weir.hop owner > weir.decide owner owner",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ended := tracetest.NewSpanRecorder()
				tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("test")
				c := newEmptyCluster(t)
				c.standbys, c.tracer = true, tracer
				c.start(nil, NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true), NewGivenDenialLeases(true, true))
				defer c.close()
				k := c.keyWith(1, 2, 0)
				tc.fails(c)
				synctest.Wait()
				c.nodes[tc.ask].ask(t.Context(), take(k, 10, 1)) // has no span
				ctx, check := tracer.Start(t.Context(), "check")
				c.nodes[tc.ask].ask(ctx, take(k, 10, 1))
				check.End()
				synctest.Wait()
				if got := spanLines(t, ended.Ended()); !slices.Equal(got, tc.want) {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			})
		})
	}
}

// testSpan returns a span of some trace.
func testSpan(n byte) *trace.SpanContext { return testSpanOf(trace.TraceID{15: n}, trace.SpanID{7: n}) }

func testSpanOf(of trace.TraceID, id trace.SpanID) *trace.SpanContext {
	c := trace.NewSpanContext(trace.SpanContextConfig{TraceID: of, SpanID: id, TraceFlags: trace.FlagsSampled, Remote: true})
	return &c
}

// A frame without a traced request is what it was before nodes said whose span a request belongs to, byte by byte. So is any frame for
// a node that does not read that.
func TestFramesWithoutTraces(t *testing.T) {
	const before = "04" + "0a00000000" + "0b40420f00" + "01" + "01000000" + "01" +
		"0700000000000000" + "0000000000000000" + "0100" + "0a" + "80c0e285e368" + "02"
	for name, tc := range map[string]struct {
		minorVersion uint8
		span         *trace.SpanContext
		want         string
	}{
		"not traced":     {connMinorVersion, nil, ""},
		"an older peer":  {0, testSpan(1), ""},
		"traced as well": {connMinorVersion, testSpan(1), fmt.Sprintf("0d%031d1%015d101", 0, 0)},
	} {
		c := healthyConn()
		c.minorVersion = tc.minorVersion
		a := newTestCall()
		a.sent, a.due, a.span = c.base, c.base.Add(time.Second), tc.span
		k := take(ring.Key{Hi: 7}, 10, 1)
		if _, err := c.enqueue(a, []*shard.Group{{Takes: []shard.Take{k}}}, nil); err != nil {
			t.Fatal(err)
		}
		at := len("04" + "0a00000000" + "0b40420f00")
		if got, want := hex.EncodeToString(c.queue[0][lengthSize:]), before[:at]+tc.want+before[at:]; got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The requests of a frame belong to the span that was named last before them.
func TestRequestsOfSpans(t *testing.T) {
	c := healthyConn()
	c.minorVersion = connMinorVersion
	spans := []*trace.SpanContext{nil, testSpan(1), testSpan(1), testSpan(2), nil, testSpan(3)}
	spans[2] = spans[1]
	for _, span := range spans {
		a := newTestCall()
		a.span = span
		if _, err := c.enqueue(a, []*shard.Group{{Takes: []shard.Take{take(ring.Key{Hi: 1}, 1, 1)}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	r := openFrame(c.queue[0][lengthSize:])
	for i, want := range spans {
		r.preamble()
		var q request
		r.request(&q, nil)
		if (q.span == nil) != (want == nil) || want != nil && !q.span.Equal(*want) {
			t.Errorf("request %d belongs to %v, want %v", i, q.span, want)
		}
	}
	if r.preamble(); r.more() || r.err != nil {
		t.Errorf("%v, %d bytes left", r.err, len(r.frame)-r.at)
	}
}

// A node with a tracer allocates nothing for requests that are not traced.
func TestUntracedRequestsAllocateNothing(t *testing.T) {
	r := &Router{tracer: sdktrace.NewTracerProvider().Tracer("test")}
	r.own.router = r
	run := make([]request, 8)
	if n := testing.AllocsPerRun(100, func() {
		_, spans := r.own.startDecisions(run)
		endDecisions(spans, nil)
		endHop(r.startHop(context.Background(), Member{}, asOwner), nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
