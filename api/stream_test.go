package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// testStream is a caller's end of a stream. What must not fail fails the test.
type testStream struct {
	weirv1.RateLimiter_StreamRateLimitsClient
	t *testing.T
}

func (f *fixture) stream(t *testing.T) testStream {
	t.Helper()
	s, err := weirv1.NewRateLimiterClient(f.dial(t)).StreamRateLimits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return testStream{s, t}
}

func (s testStream) send(id uint64, texts ...string) {
	s.t.Helper()
	m := &weirv1.StreamRateLimitsRequest{Id: id}
	for _, text := range texts {
		m.Requests = append(m.Requests, request(text))
	}
	s.sendMessage(m)
}

func (s testStream) sendMessage(m *weirv1.StreamRateLimitsRequest) {
	s.t.Helper()
	if err := s.Send(m); err != nil {
		s.t.Fatal(err)
	}
}

func (s testStream) receive() *weirv1.StreamRateLimitsResponse {
	s.t.Helper()
	m, err := s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// closed closes the caller's side and expects no more answers.
func (s testStream) closed() {
	s.t.Helper()
	if err := s.CloseSend(); err != nil {
		s.t.Error(err)
	}
	if m, err := s.Recv(); !errors.Is(err, io.EOF) {
		s.t.Errorf("after the end: %v, %v", m, err)
	}
}

// briefError tells the error of an answer, "" if it has none.
func briefError(m *weirv1.StreamRateLimitsResponse) string {
	if m.GetError() == nil {
		return ""
	}
	return fmt.Sprint(m.GetError().GetCode(), " ", m.GetError().GetMessage())
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, checkRules).stream(t)
		s.send(7, "user=a endpoint=/posts cost=9", "user=a", "user=a endpoint=/posts cost=2", "user=a endpoint=/posts peek")
		m := s.receive()
		var got []string
		for _, r := range m.GetResponses() {
			got = append(got, brief(r))
		}
		want := []string{
			"allowed owner posts 10/10s left 1 reset 19 18.888888889s",
			"allowed no_rule",
			"denied owner posts 10/10s left 1 reset 19 18.888888889s retry 11 10.000000001s",
			"allowed owner posts 10/10s left 0 reset 20 19.000000001s",
		}
		if m.GetId() != 7 || m.GetError() != nil || !slices.Equal(got, want) {
			t.Errorf("got  %d %v %q\nwant %q", m.GetId(), m.GetError(), got, want)
		}
		s.closed()
	})
}

// Each answer says by which view the node routes then, that to a refused message too.
func TestStreamTellsView(t *testing.T) {
	f := newFixture(t, checkRules)
	var view uint64
	f.view = func() uint64 { view++; return view }
	s := f.stream(t)
	for want := uint64(1); want <= 2; want++ {
		s.send(want, []string{"user=a", ""}[want-1])
		if m := s.receive(); m.GetView() != want || (m.GetError() != nil) != (want == 2) {
			t.Errorf("got %v, want view %d", m, want)
		}
	}
}

// A message that is refused is answered, and says nothing of the others.
func TestStreamRefuses(t *testing.T) {
	f := newFixture(t, inputRules)
	s := f.stream(t)
	refuses := func(want string, m *weirv1.StreamRateLimitsRequest) {
		t.Helper()
		s.sendMessage(m)
		if got := s.receive(); briefError(got) != "3 "+want || got.GetId() != m.GetId() || len(got.GetResponses()) != 0 {
			t.Errorf("got %v, want %s", got, want)
		}
	}
	message := func(n int) *weirv1.StreamRateLimitsRequest {
		return &weirv1.StreamRateLimitsRequest{Id: math.MaxUint64 - uint64(n), Requests: batchOf(n).GetRequests()}
	}
	refuses("requests: must not be empty", message(0))
	refuses("requests: 1001 items are more than 1000", message(1001))
	for want, spoil := range badRequests {
		m := message(5)
		spoil(m.Requests[3])
		refuses("requests[3]."+want, m)
	}
	for want, timeout := range map[string]*durationpb.Duration{
		"0s0ns": {}, "0s-1ns": {Nanos: -1}, "1s-1ns": {Seconds: 1, Nanos: -1}, "9223372036854775807s0ns": {Seconds: 1<<63 - 1},
	} {
		m := message(1)
		m.Timeout = timeout
		refuses("timeout: "+want+" is not a duration above 0", m)
	}
	if f.shard.Len() != 0 {
		t.Error("a refused message was counted")
	}
	s.sendMessage(message(1000))
	if m := s.receive(); len(m.GetResponses()) != 1000 || m.GetResponses()[999].GetRemainingTokens() != 4000 {
		t.Errorf("1000 items: %d responses, %v", len(m.GetResponses()), m.GetError())
	}
	s.closed()
}

// deciderFunc is what a fixture asks instead of its shard.
type deciderFunc struct {
	Decider
	decide func(ctx context.Context, groups []shard.Group)
}

func (d deciderFunc) Decide(ctx context.Context, groups []shard.Group) {
	d.decide(ctx, groups)
	d.Decider.Decide(ctx, groups)
}

// While one message waits for a slow peer, others of its stream go on: as many as
// there are workers.
func TestStreamPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		f.checks.Decider = deciderFunc{f, func(_ context.Context, groups []shard.Group) {
			if groups[0].Takes[0].Limit.Limit == 10 {
				time.Sleep(25 * time.Millisecond)
			}
		}}
		start, s := time.Now(), f.stream(t)
		receive := func(want ...uint64) {
			t.Helper()
			var got []uint64
			for range want {
				got = append(got, s.receive().GetId())
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		for id := range uint64(maxUnderWay - 1) {
			s.send(id, "user=a endpoint=/posts")
		}
		for id := range uint64(50) {
			s.send(100+id, "user=a endpoint=/fast")
			receive(100 + id)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("what is quick took %v", took)
		}
		s.send(7, "user=a endpoint=/posts")
		s.send(8, "user=a endpoint=/fast") // for which there is no worker
		receive(0, 1, 2, 3, 4, 5, 6, 7, 8)
		if took := time.Since(start); took != 25*time.Millisecond {
			t.Errorf("what is slow took %v", took)
		}
		s.closed()
	})
}

// fakeServer is the node's end of a stream without gRPC.
type fakeServer struct {
	grpc.ServerStream
	ctx      context.Context
	messages chan wire.Encoded // closed when the caller has closed its side
	answers  chan wire.Encoded
	sending  atomic.Int32 // calls of SendMsg under way
}

func (s *fakeServer) Context() context.Context { return s.ctx }

func (s *fakeServer) SendMsg(m any) error {
	s.sending.Add(1)
	defer s.sending.Add(-1)
	s.answers <- m.(wire.Encoded)
	return nil
}

func (s *fakeServer) RecvMsg(m any) error {
	next, more := <-s.messages
	if !more {
		return io.EOF
	}
	m.(*wire.Request).Encoded = next
	return nil
}

// A caller that waits for each answer needs no more workers than one and the next. Answers to others are
// sent one by one, which gRPC demands.
func TestStreamWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &fakeServer{
			ctx: t.Context(), messages: make(chan wire.Encoded), answers: make(chan wire.Encoded),
		}
		s := newStream(newFixture(t, checkRules).Limiter, server)
		end := make(chan error)
		go func() { end <- s.run() }()
		for range 10 * maxUnderWay {
			server.messages <- wire.CopyEncoded(nil)
			<-server.answers
			synctest.Wait()
		}
		if s.started != 2 { // no other goroutine reads it now
			t.Errorf("%d workers", s.started)
		}
		for range maxUnderWay {
			server.messages <- wire.CopyEncoded(nil)
		}
		close(server.messages)
		for range maxUnderWay {
			synctest.Wait()
			if n := server.sending.Load(); n != 1 || s.started != maxUnderWay {
				t.Errorf("%d workers, of which %d send", s.started, n)
			}
			<-server.answers
		}
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
}

// A message's timeout bounds its decision, and that of no other.
func TestStreamTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		f.checks.Decider = deciderFunc{f, func(ctx context.Context, _ []shard.Group) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}}
		start, s := time.Now(), f.stream(t)
		s.send(1, "user=a")
		s.sendMessage(&weirv1.StreamRateLimitsRequest{
			Id: 2, Requests: batchOf(1).GetRequests(), Timeout: durationpb.New(time.Millisecond),
		})
		for _, want := range []struct {
			id    uint64
			after time.Duration
		}{{2, time.Millisecond}, {1, time.Second}} {
			if m := s.receive(); m.GetId() != want.id || time.Since(start) != want.after {
				t.Errorf("answer %d after %v, want %+v", m.GetId(), time.Since(start), want)
			}
		}
	})
}

// What is under way is bounded, however much is sent.
func TestStreamBoundsDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		var underWay atomic.Int32
		gate := make(chan struct{})
		f.checks.Decider = deciderFunc{f, func(context.Context, []shard.Group) {
			underWay.Add(1)
			<-gate
		}}
		s := f.stream(t)
		const messages = 5 * maxUnderWay
		for id := range uint64(messages) {
			s.send(id, "user=a")
		}
		synctest.Wait()
		if n := underWay.Load(); n != maxUnderWay {
			t.Errorf("%d messages are decided at once, want %d", n, maxUnderWay)
		}
		close(gate)
		for range messages {
			s.receive()
		}
		s.closed()
	})
}

// A caller that does not read cannot go on sending, and the node does not decide
// what it cannot answer.
func TestStreamPushesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		var decided atomic.Int32
		f.checks.Decider = deciderFunc{f, func(context.Context, []shard.Group) { decided.Add(1) }}
		s := f.stream(t)
		m := &weirv1.StreamRateLimitsRequest{} // of 45 KB, and an answer of 25 KB
		for range 150 {
			m.Requests = append(m.Requests, request("user="+long256+" endpoint=/both"))
		}
		var sent atomic.Int32
		const messages = 50
		go func() {
			for range messages {
				s.sendMessage(m)
				sent.Add(1)
			}
		}()
		synctest.Wait()
		// In addition to calls under way, gRPC holds some windows of 64 KiB or more.
		if n := decided.Load(); n < maxUnderWay || n > 3*maxUnderWay {
			t.Errorf("%d messages were decided for one who does not read", n)
		}
		if sent.Load() == messages {
			t.Error("a client that does not read can send for ever")
		}
		for range messages {
			s.receive()
		}
		s.closed()
	})
}

// A caller that goes leaves nothing behind: the bubble waits for all goroutines.
func TestStreamCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		f.checks.Decider = deciderFunc{f, func(ctx context.Context, _ []shard.Group) { <-ctx.Done() }}
		ctx, cancel := context.WithCancel(t.Context())
		client, err := weirv1.NewRateLimiterClient(f.dial(t)).StreamRateLimits(ctx)
		if err != nil {
			t.Fatal(err)
		}
		s := testStream{client, t}
		for id := range uint64(2 * maxUnderWay) {
			s.send(id, "user=a")
		}
		synctest.Wait()
		cancel()
		if _, err := s.Recv(); status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	})
}

// A node that stops answers what it decides, and then ends its streams.
func TestStreamStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, checkRules)
		gate := make(chan struct{})
		f.checks.Decider = deciderFunc{f, func(context.Context, []shard.Group) { <-gate }}
		s := f.stream(t)
		for id := range uint64(2 * maxUnderWay) {
			s.send(id, "user=a")
		}
		synctest.Wait()
		f.Stop()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			f.grpc.GracefulStop()
		}()
		close(gate)
		answers := 0
		_, err := s.Recv()
		for ; err == nil; _, err = s.Recv() {
			answers++
		}
		if answers < maxUnderWay {
			t.Errorf("%d answers of %d that were being decided", answers, maxUnderWay)
		}
		if st := status.Convert(err); st.Code() != codes.Unavailable || !strings.HasPrefix(st.Message(), "the node is stopping") {
			t.Error(err)
		}
		<-stopped
	})
}

// Messages share what is used to decide them. None may see another's.
func TestStreamsDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // so that no hour ends
		f := newFixture(t, callerRules())
		s := f.stream(t)
		go func() {
			for round := range uint64(rounds) {
				for i := range uint64(callers) {
					s.send(round*callers+i, fmt.Sprintf("user=u%d caller=c%d", i, i), "user=x", fmt.Sprintf("user=u%d caller=c%d", i, i))
				}
			}
			if err := s.CloseSend(); err != nil {
				t.Error(err)
			}
		}()
		seen := make(map[uint64]bool)
		for range rounds * callers {
			m := s.receive()
			seen[m.GetId()] = true
			rule := fmt.Sprint("r", m.GetId()%callers)
			if r := m.GetResponses(); len(r) != 3 || r[0].GetRuleId() != rule || r[2].GetRuleId() != rule ||
				r[1].GetRuleId() != "" || r[0].GetRemainingTokens() <= r[2].GetRemainingTokens() {
				t.Fatalf("message %d: %v", m.GetId(), m)
			}
		}
		if len(seen) != rounds*callers {
			t.Errorf("%d ids of %d", len(seen), rounds*callers)
		}
	})
}
