package api

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var errStopping = status.Error(codes.Unavailable, "the node is stopping; ask another one")

// stream is one call of StreamRateLimits. One goroutine reads; up to maxUnderWay
// others take what it has read, decide, and send. When they are all busy, it waits,
// and gRPC's flow control makes the caller wait.
type stream struct {
	*Limiter
	grpc     weirv1.RateLimiter_StreamRateLimitsServer
	messages chan *weirv1.StreamRateLimitsRequest // without room; closed at the end of what there is to read
	workers  sync.WaitGroup                       // but for the first
	sending  chan struct{}                        // holds a token while somebody sends

	mu            sync.Mutex
	started, idle int // workers, and those that wait for a message or will; guarded by mu
}

// StreamRateLimits implements weirv1.RateLimiterServer.
func (s rateLimiter) StreamRateLimits(server weirv1.RateLimiter_StreamRateLimitsServer) error {
	return newStream(s.Limiter, server).run()
}

func newStream(l *Limiter, server weirv1.RateLimiter_StreamRateLimitsServer) *stream {
	return &stream{
		Limiter: l, grpc: server,
		messages: make(chan *weirv1.StreamRateLimitsRequest), sending: make(chan struct{}, 1),
		started: 1, idle: 1,
	}
}

// run works until the stream ends. Of the goroutines it does not wait for the one
// that reads: only the end of the call ends its Recv.
func (s *stream) run() error {
	end := make(chan error, 1)
	go func() { end <- s.read() }()
	s.work()
	s.workers.Wait()
	select {
	case err := <-end:
		return err
	case <-s.stopped.Done():
		return errStopping
	}
}

// read passes on what comes until the caller closes its side, as nil, or the call
// ends.
func (s *stream) read() error {
	defer close(s.messages)
	for {
		m, err := s.grpc.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case s.messages <- m:
		case <-s.grpc.Context().Done():
			return status.FromContextError(s.grpc.Context().Err()).Err()
		}
	}
}

// work answers messages until there are no more or the node stops.
func (s *stream) work() {
	for {
		select {
		case m, more := <-s.messages:
			if !more {
				return
			}
			s.begin()
			s.send(s.check(m))
			s.end()
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
func (s *stream) send(m *weirv1.StreamRateLimitsResponse) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	_ = s.grpc.Send(m)
}

// check answers one message.
func (s *stream) check(m *weirv1.StreamRateLimitsRequest) *weirv1.StreamRateLimitsResponse {
	resp := &weirv1.StreamRateLimitsResponse{Id: m.GetId()}
	ctx := s.grpc.Context()
	err := validTimeout(m)
	if err == nil {
		if m.GetTimeout() != nil {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, m.GetTimeout().AsDuration())
			defer cancel()
		}
		resp.Responses, err = s.checkAll(ctx, m.GetRequests(), s.metrics.stream)
	}
	if err != nil {
		st := status.Convert(err)
		resp.Error = &weirv1.CheckError{Code: int32(st.Code()), Message: st.Message()}
	}
	return resp
}

// validTimeout allows none, or one above 0.
func validTimeout(m *weirv1.StreamRateLimitsRequest) error {
	if t := m.GetTimeout(); t != nil && (t.CheckValid() != nil || t.AsDuration() <= 0) {
		return invalid("timeout", "%ds%dns is not a duration above 0", t.GetSeconds(), t.GetNanos())
	}
	return nil
}
