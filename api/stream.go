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

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

var errStopping = status.Error(codes.Unavailable, "the node is stopping; ask another one")

// stream is one call of StreamRateLimits. One goroutine reads; up to maxUnderWay
// others take what it has read, decide, and send. When they are all busy, it waits,
// and gRPC's flow control makes the caller wait.
type stream struct {
	*Limiter
	grpc     grpc.ServerStream
	messages chan encoded   // without room; closed at the end of what there is to read
	workers  sync.WaitGroup // but for the first
	sending  chan struct{}  // holds a token while somebody sends

	mu            sync.Mutex
	started, idle int // workers, and those that wait for a message or will; guarded by mu
}

// StreamRateLimits implements weirv1.RateLimiterServer.
func (s rateLimiter) StreamRateLimits(server weirv1.RateLimiter_StreamRateLimitsServer) error {
	return newStream(s.Limiter, server).run()
}

func newStream(l *Limiter, server grpc.ServerStream) *stream {
	return &stream{
		Limiter: l, grpc: server,
		messages: make(chan encoded), sending: make(chan struct{}, 1),
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
		var m encoded
		switch err := s.grpc.RecvMsg(&m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		select {
		case s.messages <- m:
		case <-s.grpc.Context().Done():
			m.Free()
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
func (s *stream) send(m encoded) {
	s.sending <- struct{}{}
	defer func() { <-s.sending }()
	_ = s.grpc.SendMsg(m)
}

// check answers one message, which it frees.
func (s *stream) check(m encoded) encoded {
	start := time.Now()
	w := s.newWork()
	defer s.works.Put(w)
	var head weirv1.StreamRateLimitsRequest
	err := decodeStream(newPart(m.ReadOnlyData()), &w.list, &head)
	if err == nil {
		err = s.checkWithin(w, head.Timeout)
	}
	m.Free()
	w.out = appendVarint(w.out[:0], 1, head.Id)
	if err != nil {
		w.out = appendError(w.out, 3, status.Convert(err))
	} else {
		w.out = s.appendAnswers(w.out, w, 2)
		s.metrics.stream.Observe(time.Since(start).Seconds())
	}
	return copyEncoded(w.out)
}

// checkWithin decides the requests of w.list within the timeout, which may be nil.
func (s *stream) checkWithin(w *work, timeout *durationpb.Duration) error {
	ctx := s.grpc.Context()
	if timeout == nil {
		return s.checkAll(ctx, w)
	}
	d := timeout.AsDuration()
	if timeout.CheckValid() != nil || d <= 0 {
		return invalid("timeout", "%ds%dns is not a duration above 0", timeout.GetSeconds(), timeout.GetNanos())
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.checkAll(ctx, w)
}
