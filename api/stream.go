package api

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/api/internal/wire"
	"github.com/weirlimit/weir/internal/access"
	"github.com/weirlimit/weir/internal/tracing"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var (
	errStarting = status.Error(codes.Unavailable, "the node is starting; ask another one")
	errStopping = status.Error(codes.Unavailable, "the node is stopping; ask another one")
	errRevoked  = access.StatusOf(access.Revoked)
)

// stream is one call of StreamRateLimits. One goroutine reads; up to maxUnderWay
// others take what it has read, decide, and send. When they are all busy, it waits,
// and gRPC's flow control makes the caller wait.
type stream struct {
	*Limiter
	grpc     grpc.ServerStream
	conn     *meteredConn  // nil if the server does not know its connections
	messages chan received // without room; closed at the end of what there is to read
	workers  sync.WaitGroup
	sending  chan struct{} // holds one entry while a goroutine sends
	over     chan struct{} // closed when the stream must end
	once     sync.Once     // closes over
	err      error         // with which it ends then

	revoked <-chan struct{} // closed when the caller's token is revoked; nil if that cannot happen

	mu            sync.Mutex
	started, idle int // workers, and those that wait for a message or will; guarded by mu
}

// StreamRateLimits implements weirv1.RateLimiterServer.
func (s rateLimiter) StreamRateLimits(server weirv1.RateLimiter_StreamRateLimitsServer) error {
	if s.started != nil && !s.started() {
		return errStarting
	}
	return newStream(s.Limiter, server).run()
}

func newStream(l *Limiter, server grpc.ServerStream) *stream {
	s := &stream{
		Limiter: l, grpc: server,
		messages: make(chan received), sending: make(chan struct{}, 1), over: make(chan struct{}),
		started: 1, idle: 1, revoked: revoked(server.Context()), conn: meteredConnOf(server.Context()),
	}
	return s
}

// run works until the stream ends. Of the goroutines it does not wait for the one
// that reads: only the end of the call ends its Recv. Nor does it wait for those that send
// what is not read.
func (s *stream) run() error {
	end, done := make(chan error, 1), make(chan struct{})
	go func() { end <- s.read() }()
	s.workers.Go(s.work)
	go func() {
		s.workers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-s.over:
		return s.err
	case <-s.revoked:
		return errRevoked
	}
	select {
	case <-s.over: // by the last message
		return s.err
	case err := <-end:
		return err
	case <-s.stopped.Done():
		return errStopping
	case <-s.revoked:
		return errRevoked
	}
}

// read passes on what comes until the caller closes its side, as nil, or the call
// ends.
func (s *stream) read() error {
	defer close(s.messages)
	for {
		var m wire.Request
		switch err := s.grpc.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		next, ok := s.reserve(m)
		next.ctx = s.overload.Began(s.grpc.Context(), ofConn)
		if !ok {
			m.Free()
			return errUnread
		}
		select {
		case s.messages <- next:
		case <-s.grpc.Context().Done():
			s.drop(next)
			return status.FromContextError(s.grpc.Context().Err()).Err()
		}
	}
}

// received is a message that waits for its answer, for which there is room.
type received struct {
	wire.Request
	reserved int64           // bytes
	ctx      context.Context // of Overload.Began
}

// reserve makes room for the answer to m, unless the stream must end. Answers are longer than
// their messages, by what rules there are.
func (s *stream) reserve(m wire.Request) (received, bool) {
	if s.conn == nil {
		return received{Request: m}, true
	}
	n := min(answerRatio*int64(m.Len())+minMetered, fairUnread)
	if s.conn.reserve(s.grpc.Context(), n) {
		return received{Request: m, reserved: n}, true
	}
	s.fail(errUnread)
	return received{}, false
}

// fail ends the stream.
func (s *stream) fail(err error) {
	s.once.Do(func() {
		if errors.Is(err, errUnread) {
			s.conn.refuse()
		}
		s.err = err
		close(s.over)
	})
}

// answerRatio is how much longer an answer may be than its message before more is counted than
// was reserved.
const answerRatio = 12

// work answers messages until there are no more or the node stops.
func (s *stream) work() {
	for {
		select {
		case m, more := <-s.messages:
			if !more {
				return
			}
			s.begin()
			if a, ok := s.check(m); ok {
				s.send(a)
			}
			s.end()
		case <-s.over:
			return
		case <-s.revoked:
			return
		case <-s.stopped.Done():
			return
		}
	}
}

// begin counts a worker as busy. If it was the last idle one it starts another, so
// that a slow message does not hold up the next.
func (s *stream) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle--
	if s.idle == 0 && s.started < maxUnderWay {
		s.started++
		s.idle++
		s.workers.Go(s.work)
	}
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle++
}

// send sends an answer. If that fails the call has ended, and so has reading.
func (s *stream) send(a streamAnswer) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	err := s.grpc.SendMsg(a.Encoded)
	// gRPC forgets the buffer of an answer that it takes while the client resets the stream.
	if err == nil && s.grpc.Context().Err() != nil && a.unread != nil {
		a.unread.end()
	}
}

// drop frees a message that has no answer.
func (s *stream) drop(m received) {
	m.Free()
	if s.conn != nil {
		s.conn.release(m.reserved)
	}
}

// check answers one message, which it frees. It is false if the message cannot be unpacked or there is no room for the answer,
// and the stream ends.
func (s *stream) check(m received) (streamAnswer, bool) {
	start, ctx := time.Now(), m.ctx
	defer s.overload.Ended(ctx)
	if err := m.Unpack(ctx); err != nil {
		s.drop(m)
		s.fail(err)
		return streamAnswer{}, false
	}
	w := s.newWork(s.grpc.Context())
	defer s.works.Put(w)
	w.API, w.Start = "stream", start
	var head weirv1.StreamRateLimitsRequest
	err := decodeStream(m.Part(), &w.list, &head)
	if head.Traceparent != "" {
		ctx = tracing.WithRemote(ctx, head.Traceparent)
	}
	ctx = s.checks.StartSpan(ctx, &w.Work, w.API)
	defer w.EndSpan()
	if err == nil {
		err = s.checkWithin(ctx, w, head.Timeout)
	}
	m.Free()
	w.out = wire.AppendVarint(w.out[:0], 1, head.Id)
	if err != nil {
		_ = s.failed("stream", err)
		w.out = appendError(w.out, 3, status.Convert(err))
	} else {
		w.out = s.appendAnswers(w.out, w, 2)
		w.Observe(s.duration.stream)
	}
	w.out = wire.AppendVarint(w.out, 4, s.view())
	if s.conn == nil {
		return streamAnswer{Encoded: wire.CopyEncoded(w.out)}, true
	}
	a, ok := s.conn.encode(w.out, m.reserved)
	if !ok {
		s.fail(errUnread)
	}
	return a, ok
}

// checkWithin decides the requests of w.list within the timeout, which may be nil.
func (s *stream) checkWithin(ctx context.Context, w *work, timeout *durationpb.Duration) error {
	if timeout == nil {
		return s.checkAll(ctx, w)
	}
	d := timeout.AsDuration()
	if timeout.CheckValid() != nil || d <= 0 {
		return wire.Invalid("timeout", "%ds%dns is not a duration above 0", timeout.GetSeconds(), timeout.GetNanos())
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.checkAll(ctx, w)
}
