package client

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const (
	sampled   = "00-01000000000000000000000000000000-0200000000000000-01"
	unsampled = "00-01000000000000000000000000000000-0200000000000000-00"
)

// spanKey is where the contexts of these tests have a traceparent.
type spanKey struct{}

func spanFrom(ctx context.Context) string {
	parent, _ := ctx.Value(spanKey{}).(string)
	return parent
}

// Spans go to nodes as the function of WithTraceparent has them, except those that are malformed, and on streams those that are not
// sampled.
func TestSpansOfCalls(t *testing.T) {
	for _, tc := range []struct{ parent, onCall, onStream string }{
		{"", "", ""},
		{sampled, sampled, sampled},
		{strings.TrimSuffix(sampled, "1") + "3", sampled[:54] + "3", sampled[:54] + "3"},
		{unsampled, unsampled, ""},
		{sampled[1:], "", ""},
		{sampled + "-", "", ""},
		{strings.ToUpper(sampled[:10]) + "X" + sampled[11:], "", ""},
		{sampled[:3] + "\n" + sampled[4:], "", ""},
	} {
		var o options
		if err := WithTraceparent(spanFrom)(&o); err != nil {
			t.Fatal(err)
		}
		ctx := context.WithValue(t.Context(), spanKey{}, tc.parent)
		if got := o.sampledSpanOf(ctx); got != tc.onStream {
			t.Errorf("%q: a message of a stream has %q, want %q", tc.parent, got, tc.onStream)
		}
		called := false
		err := o.traceCall(ctx, "/m", nil, nil, nil, func(ctx context.Context, _ string, _, _ any, _ *grpc.ClientConn, _ ...grpc.CallOption) error {
			called = true
			sent, _ := metadata.FromOutgoingContext(ctx)
			if got := strings.Join(sent.Get(traceparent), " "); got != tc.onCall {
				t.Errorf("%q: a call has %q, want %q", tc.parent, got, tc.onCall)
			}
			return nil
		})
		if err != nil || !called {
			t.Errorf("called: %v, %v", called, err)
		}
	}
	var none options
	if err := WithTraceparent(nil)(&none); err == nil || none.spanOf(t.Context()) != "" {
		t.Errorf("without a function: %v, %q", err, none.spanOf(t.Context()))
	}
}

// A check that belongs to a span says so, and is alone in its message; others say nothing, in the same memory.
func TestChecksBelongToSpans(t *testing.T) {
	pool, due := newCallPool(), time.Now().Add(time.Hour)
	reqs := []*weirv1.RateLimitRequest{{IdentifierType: "user", Identifier: "alice"}}
	take := func(parent string) *call {
		t.Helper()
		k, err := pool.take(parent, reqs, false, time.Now(), due)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sent := func(calls ...*call) *weirv1.StreamRateLimitsRequest {
		t.Helper()
		var f frame
		for _, k := range calls {
			f.add(k)
		}
		f.finish(7, time.Second)
		m := new(weirv1.StreamRateLimitsRequest)
		if err := proto.Unmarshal(f.bytes, m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	traced := take(sampled)
	if m := sent(traced); m.GetTraceparent() != sampled || m.GetId() != 7 || len(m.GetRequests()) != 1 {
		t.Errorf("%v, want the span %s", m, sampled)
	}
	plain, other := take(""), take("")
	if m := sent(plain, other); m.GetTraceparent() != "" || len(m.GetRequests()) != 2 {
		t.Errorf("%v, want no span", m)
	}
	var withTraced, withPlain frame
	withTraced.add(traced)
	withPlain.add(plain)
	if withTraced.fits(plain) || withPlain.fits(traced) || !withPlain.fits(other) {
		t.Errorf("a traced frame takes a plain call: %v, a plain one a traced call: %v, a plain one a plain call: %v", withTraced.fits(plain), withPlain.fits(traced), withPlain.fits(other))
	}
	withTraced.reset()
	if !withTraced.fits(plain) {
		t.Error("a frame that is used again takes no plain call")
	}
	traced.free()
	if m := sent(take("")); m.GetTraceparent() != "" {
		t.Errorf("a call whose memory is used again has the span %s", m.GetTraceparent())
	}
}
