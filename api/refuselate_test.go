package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"

	"github.com/weirlimit/weir/internal/inmemory"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// farAway is the farthest deadline of a call, 11,000 years, of which gRPC makes 292.
const farAway = "99999999H"

// rawCaller makes many calls on a connection, without the memory of a client of gRPC.
type rawCaller struct {
	net.Conn
	out     *h2
	last    uint32 // stream
	answers *http2.Framer
}

// rawCaller returns one of the server of serve, until the test ends.
func (f *fixture) rawCaller(t testing.TB, listener *inmemory.Listener) *rawCaller {
	t.Helper()
	conn, err := listener.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawCaller{Conn: conn, out: newH2(http2.ClientPreface), answers: http2.NewFramer(io.Discard, conn)}
	c.answers.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return c
}

// begin begins a call and ends what it sends.
func (c *rawCaller) begin(method, timeout string) error {
	if c.last == 0 {
		_ = c.out.WriteSettings() // into memory, as all of this
	}
	var block bytes.Buffer
	packed := hpack.NewEncoder(&block)
	packed.SetMaxDynamicTableSize(0)
	for _, field := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method}, {Name: ":authority", Value: "node"},
		{Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}, {Name: "grpc-timeout", Value: timeout},
	} {
		if field.Value != "" {
			_ = packed.WriteField(field)
		}
	}
	c.last += 2
	_ = c.out.WriteHeaders(http2.HeadersFrameParam{StreamID: c.last - 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	_, err := c.Write(c.out.take())
	return err
}

// call makes calls, some at a time, and returns how many had each status.
func (c *rawCaller) call(t testing.TB, calls int, method, timeout string) map[string]int {
	t.Helper()
	underWay, sent := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		for range calls {
			underWay <- struct{}{}
			if err := c.begin(method, timeout); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	got := make(map[string]int)
	for range calls {
		got[c.nextStatus(t)]++
		<-underWay
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return got
}

// nextStatus returns the next status.
func (c *rawCaller) nextStatus(t testing.TB) string {
	t.Helper()
	for {
		frame, err := c.answers.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		fields, ok := frame.(*http2.MetaHeadersFrame)
		if !ok {
			continue
		}
		for _, field := range fields.Fields {
			if field.Name == "grpc-status" {
				return field.Value
			}
		}
	}
}

// objects counts what is in memory.
func objects() int64 {
	var m runtime.MemStats
	for range 2 { // what pools have is dropped by the second one
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapObjects)
}

// A call that is refused before it is read leaves nothing in memory, if its deadline is far.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	withoutTime := func(_ *testing.T, f *fixture) { f.overload, f.tap = noTime{}, f.Limiter.Tap }
	withoutRole := func(t *testing.T, f *fixture) {
		a, _ := tokensOf(t, "check")
		f.access, f.tap = a, a.Tap(f.Limiter.Tap)
	}
	for name, tc := range map[string]struct {
		refused         func(*testing.T, *fixture)
		method, timeout string
		want            string
	}{
		"overload":                       {withoutTime, weirv1.RateLimiter_CheckRateLimit_FullMethodName, farAway, "8"},
		"overload, no deadline":          {withoutTime, weirv1.RateLimiter_CheckRateLimit_FullMethodName, "", "8"},
		"overload, the nearest":          {withoutTime, weirv1.RateLimiter_CheckRateLimitBatch_FullMethodName, "6S", "8"},
		"no token":                       {withoutRole, weirv1.RateLimiter_CheckRateLimit_FullMethodName, farAway, "16"},
		"no token, a stream":             {withoutRole, weirv1.RateLimiter_StreamRateLimits_FullMethodName, farAway, "16"},
		"no token, Envoy":                {withoutRole, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, farAway, "16"},
		"no token, an unknown method":    {withoutRole, "/weir.v1.RateLimiter/No", farAway, "12"},
		"no token, an unknown service":   {withoutRole, "/no/No", farAway, "12"},
		"no token, not even a method":    {withoutRole, "no", farAway, "12"},
		"no token, a malformed deadline": {withoutRole, weirv1.RateLimiter_CheckRateLimit_FullMethodName, "1D", "13"},
	} {
		t.Run(name, func(t *testing.T) {
			const calls = 10_000
			f := newFixture(t, checkRules)
			tc.refused(t, f)
			c := f.rawCaller(t, f.serve(t))
			c.call(t, 100, tc.method, tc.timeout)
			before := objects()
			if got := c.call(t, calls, tc.method, tc.timeout); got[tc.want] != calls {
				t.Errorf("the answers are %v, want %s", got, tc.want)
			}
			if left := objects() - before; left > calls/2 {
				t.Errorf("%d calls leave %d objects", calls, left)
			}
		})
	}
}

// Calls whose deadlines are near are refused by the tap, as that is faster, and no more than a number of them. Each way gives the same answer.
func TestFewRefusedCallsLinger(t *testing.T) {
	f := newFixture(t, checkRules)
	f.overload, f.tap = noTime{}, f.Limiter.Tap
	c := f.rawCaller(t, f.serve(t))
	f.lingering.total = maxLingering / 2 // others
	for timeout, want := range map[string]int{"4S": 0, "1S": 10, "": 0, farAway: 0} {
		before := f.lingering.total
		if got := c.call(t, 10, weirv1.RateLimiter_CheckRateLimit_FullMethodName, timeout); got["8"] != 10 {
			t.Errorf("deadline %s: the answers are %v", timeout, got)
		}
		if got := f.lingering.total - before; got != want {
			t.Errorf("deadline %s: %d linger, want %d", timeout, got, want)
		}
	}
}

// As many refused calls linger as have been added and have deadlines to come, and never more than may. They count for a slot longer at most.
func TestLingeringIsBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var g lingering
	var deadlines []time.Time
	now, most, refused := time.Unix(bubble, 0), 0, 0
	for range 500 {
		now = now.Add(time.Duration(random.Int64N(int64(2 * lingerSlot))))
		if random.IntN(200) == 0 {
			now = now.Add(time.Duration(random.Int64N(int64(3 * farDeadline))))
		}
		for range random.IntN(10_000) {
			deadline := now.Add(time.Duration(random.Int64N(int64(farDeadline)+1e9)) - 5e8)
			if g.add(now, deadline) {
				deadlines = append(deadlines, later(deadline, now))
			} else {
				refused++
			}
		}
		linger := func(now time.Time) (n int) {
			for _, d := range deadlines {
				if d.After(now) {
					n++
				}
			}
			return n
		}
		deadlines = slices.DeleteFunc(deadlines, func(d time.Time) bool { return d.Before(now.Add(-lingerSlot)) })
		if g.total < linger(now) || g.total > linger(now.Add(-lingerSlot)) || g.total > maxLingering {
			t.Fatalf("%d linger, and %d are counted", linger(now), g.total)
		}
		most = max(most, g.total)
	}
	if most < maxLingering/2 || refused == 0 {
		t.Errorf("only %d, and %d refused", most, refused)
	}
	if now = now.Add(farDeadline + lingerSlot); !g.add(now, now.Add(time.Second)) || g.total != 1 {
		t.Errorf("%d are counted after all deadlines", g.total)
	}
}

// A client that does not read why its calls are refused is not read either: what it is told waits in memory.
func TestRefusedClientsMustRead(t *testing.T) {
	f := newFixture(t, checkRules)
	f.overload, f.tap = noTime{}, f.Limiter.Tap
	c := f.rawCaller(t, f.serve(t))
	c.call(t, 1, weirv1.RateLimiter_CheckRateLimit_FullMethodName, farAway)
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	const most = 1_000
	sent := 0
	for ; sent < most; sent++ {
		if err := c.begin(weirv1.RateLimiter_CheckRateLimit_FullMethodName, farAway); err != nil {
			break
		}
	}
	if sent < manyRefused || sent == most {
		t.Errorf("%d calls were read of a client that reads nothing", sent)
	}
}

// All methods refuse calls that have come to their handlers, before they read a message.
func TestAllMethodsRefuse(t *testing.T) {
	f := newFixture(t, checkRules)
	f.tap = func(ctx context.Context, _ *tap.Info) (context.Context, error) { return ctx, errManyCalls }
	conn := f.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	for service, info := range f.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/"+service+"/"+m.Name)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(nil); !errors.Is(err, errManyCalls) {
				t.Errorf("%s of %s: %v", m.Name, service, err)
			}
		}
	}
}

// BenchmarkRefusedCalls is a call that is refused by the tap, and by its handler.
func BenchmarkRefusedCalls(b *testing.B) {
	for name, timeout := range map[string]string{"tap": "100m", "handler": farAway} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b, checkRules)
			f.overload, f.tap = noTime{}, f.Limiter.Tap
			c := f.rawCaller(b, f.serve(b))
			b.ReportAllocs()
			c.call(b, b.N, weirv1.RateLimiter_CheckRateLimit_FullMethodName, timeout)
		})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A server is one that refuses all calls only if all of its services were registered for that.
func TestServicesThatDoNotRefuseAreFound(t *testing.T) {
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(Bounded(server), health.NewServer())
	if err := CheckServices(server); err != nil {
		t.Error(err)
	}
	rlsv3.RegisterRateLimitServiceServer(server, nil)
	if err := CheckServices(server); err == nil || !strings.Contains(err.Error(), "envoy.service.ratelimit.v3.RateLimitService") {
		t.Errorf("the error is %v", err)
	}
}
