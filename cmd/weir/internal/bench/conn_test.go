package bench

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// serve runs a server until the test ends, and returns a connection to it.
func serve(t *testing.T, register func(*grpc.Server)) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	conn, err := Dial(l.Addr().String(), Access{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func userRequests(t *testing.T) *Requests {
	t.Helper()
	r, err := NewRequests("", 1, []Attribute{{"user", "u"}}, newTestKeys(t, Uniform, 1000))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func newConn(t *testing.T, mode string, conn grpc.ClientConnInterface) Conn {
	t.Helper()
	c, err := NewConn(mode, conn, userRequests(t))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// together is how many messages of a stream an oddServer answers at once.
const together = 8

// oddServer denies odd users, and answers the messages of a stream in bunches, the last
// first.
type oddServer struct {
	weirv1.UnimplementedRateLimiterServer
}

func odd(req *weirv1.RateLimitRequest) *weirv1.RateLimitResponse {
	name := req.GetIdentifier()
	return &weirv1.RateLimitResponse{Allowed: (name[len(name)-1]-'0')%2 == 0, Source: weirv1.Source_SOURCE_FAIL_OPEN}
}

func odds(reqs []*weirv1.RateLimitRequest) (all []*weirv1.RateLimitResponse) {
	for _, r := range reqs {
		all = append(all, odd(r))
	}
	return all
}

func (oddServer) CheckRateLimit(_ context.Context, r *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	return odd(r), nil
}

func (oddServer) CheckRateLimitBatch(_ context.Context, r *weirv1.RateLimitBatchRequest) (*weirv1.RateLimitBatchResponse, error) {
	return &weirv1.RateLimitBatchResponse{Responses: odds(r.GetRequests())}, nil
}

func (oddServer) StreamRateLimits(s weirv1.RateLimiter_StreamRateLimitsServer) error {
	for {
		var bunch [together]*weirv1.StreamRateLimitsResponse
		for i := range bunch {
			m, err := s.Recv()
			if err != nil {
				return err
			}
			bunch[together-1-i] = &weirv1.StreamRateLimitsResponse{Id: m.GetId(), Responses: odds(m.GetRequests())}
		}
		for _, m := range bunch {
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
}

// TestModes: every mode counts what its checks were answered.
func TestModes(t *testing.T) {
	conn := serve(t, func(s *grpc.Server) { weirv1.RegisterRateLimiterServer(s, oddServer{}) })
	for _, test := range []struct {
		mode string
		keys []uint64
		want Answers
	}{
		{Unary, []uint64{2}, Answers{Allowed: 1, FailOpen: 1}},
		{Unary, []uint64{3}, Answers{Denied: 1}},
		{Batch, []uint64{1, 2, 3}, Answers{Allowed: 1, FailOpen: 1, Denied: 2}},
	} {
		got, err := newConn(t, test.mode, conn).Ask(t.Context(), test.keys)
		if err != nil || got != test.want {
			t.Errorf("%s %v: got %+v, %v, want %+v", test.mode, test.keys, got, err, test.want)
		}
	}
}

// TestStreamMatchesAnswers: messages are under way together, and each gets the answer of its id, in any
// order.
func TestStreamMatchesAnswers(t *testing.T) {
	conn := newConn(t, Stream, serve(t, func(s *grpc.Server) { weirv1.RegisterRateLimiterServer(s, oddServer{}) }))
	var all sync.WaitGroup
	for caller := range uint64(together) {
		all.Go(func() {
			for i := range uint64(100) {
				key := (caller + i) % 10
				want := Answers{Allowed: 2, FailOpen: 2}
				if key%2 == 1 {
					want = Answers{Denied: 2}
				}
				if got, err := conn.Ask(t.Context(), []uint64{key, key}); err != nil || got != want {
					t.Errorf("key %d: got %+v, %v", key, got, err)
				}
			}
		})
	}
	all.Wait()
}

// badStream answers nothing, or breaks off, or answers too little.
type badStream struct {
	weirv1.UnimplementedRateLimiterServer
	answer func(weirv1.RateLimiter_StreamRateLimitsServer) error
}

func (b badStream) StreamRateLimits(s weirv1.RateLimiter_StreamRateLimitsServer) error {
	return b.answer(s)
}

// TestStreamErrors: what gets no answer is an error with the code of what was wrong, and
// the next call gets a stream that works.
func TestStreamErrors(t *testing.T) {
	waits := func(s weirv1.RateLimiter_StreamRateLimitsServer) error { <-s.Context().Done(); return nil }
	for _, test := range []struct {
		name   string
		answer func(weirv1.RateLimiter_StreamRateLimitsServer) error
		keys   int
		want   codes.Code
	}{
		{"silent", waits, 1, codes.DeadlineExceeded},
		{"takes nothing", waits, 20_000, codes.DeadlineExceeded}, // gRPC has no room for it
		{"breaks off", func(s weirv1.RateLimiter_StreamRateLimitsServer) error {
			_, _ = s.Recv()
			return status.Error(codes.ResourceExhausted, "enough")
		}, 1, codes.ResourceExhausted},
		{"refuses one", func(s weirv1.RateLimiter_StreamRateLimitsServer) error {
			m, _ := s.Recv()
			_ = s.Send(&weirv1.StreamRateLimitsResponse{Id: m.GetId(), Error: &weirv1.CheckError{Code: int32(codes.ResourceExhausted), Message: "enough"}})
			return waits(s)
		}, 1, codes.ResourceExhausted},
		{"too little", func(s weirv1.RateLimiter_StreamRateLimitsServer) error {
			m, _ := s.Recv()
			_ = s.Send(&weirv1.StreamRateLimitsResponse{Id: m.GetId() + 1})
			_ = s.Send(&weirv1.StreamRateLimitsResponse{Id: m.GetId()})
			return waits(s)
		}, 1, codes.Internal},
	} {
		first := make(chan struct{}, 1)
		first <- struct{}{}
		conn := newConn(t, Stream, serve(t, func(s *grpc.Server) {
			weirv1.RegisterRateLimiterServer(s, badStream{answer: func(stream weirv1.RateLimiter_StreamRateLimitsServer) error {
				select {
				case <-first:
					return test.answer(stream)
				default:
					return baseline{}.StreamRateLimits(stream)
				}
			}})
		}))
		// All its requests must have been made by then: else the stream that takes nothing is not given up.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := conn.Ask(ctx, make([]uint64, test.keys))
		cancel()
		if got := status.Code(err); got != test.want && (test.name != "takes nothing" || got != codes.Unavailable) {
			t.Errorf("%s: got %v, want %v", test.name, err, test.want)
		}
		if test.name == "silent" || test.name == "refuses one" || test.name == "too little" {
			continue // the stream goes on
		}
		for { // until the end of the stream has come
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			got, err := conn.Ask(ctx, []uint64{1})
			cancel()
			if err == nil {
				if got.Allowed != 1 {
					t.Errorf("%s: got %+v afterwards", test.name, got)
				}
				break
			}
			if status.Code(err) == codes.DeadlineExceeded {
				t.Fatalf("%s: %v afterwards", test.name, err)
			}
		}
	}
}

// TestBaselineServer: the bare server answers every mode, also a look.
func TestBaselineServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeBaseline(ctx, l, true, nil) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	conn, err := Dial(l.Addr().String(), Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, mode := range Modes() {
		keys := []uint64{1, 2, 3}
		if mode == Unary {
			keys = keys[:1]
		}
		if err := Look(t.Context(), mode, conn, userRequests(t)); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		if got, err := newConn(t, mode, conn).Ask(t.Context(), keys); err != nil || got.Allowed != int64(len(keys)) {
			t.Errorf("%s: got %+v, %v", mode, got, err)
		}
	}
	if _, err := NewConn("x", conn, userRequests(t)); err == nil {
		t.Error("a mode that is none is no error")
	}
}

func TestCompareTo(t *testing.T) {
	r, bare := Report{Servers: []Usage{{CPU: 3}, {CPU: 1}}}, Report{Servers: []Usage{{CPU: 2}}}
	if r.CompareTo(bare); r.XBaseline != 2 || r.Baseline == nil {
		t.Errorf("got %+v", r)
	}
	if r.CompareTo(Report{}); r.XBaseline != 0 {
		t.Errorf("x baseline %v of a baseline that was not measured", r.XBaseline)
	}
}
