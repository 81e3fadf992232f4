package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// This file is the life of a conn's streams.

// run keeps a stream up until ctx ends.
func (l *conn) run(ctx context.Context) {
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	for {
		err := l.session(ctx)
		if ctx.Err() == nil {
			l.noteEnd(err) // before the calls under way learn that they are not answered
		}
		l.broken()
		if ctx.Err() != nil {
			return
		}
		l.notice(err)
		if errors.Is(err, errForeign) {
			pause.Reset(foreignPause)
		} else {
			pause.Reset(retryPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// session is the life of one stream, and says what has ended it.
func (l *conn) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := l.channel.NewStream(ctx, streamDesc, weirv1.RateLimiter_StreamRateLimits_FullMethodName,
		frameCodec, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := l.identify(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	l.open = true
	l.up.Store(true)
	l.mu.Unlock()
	l.notice(nil)
	var both sync.WaitGroup
	both.Go(func() { cancel(l.receive(stream)) })
	both.Go(func() { l.send(ctx, stream) })
	cancel(l.watch(ctx))
	both.Wait()
	return context.Cause(ctx)
}

// identify asks the node who it is. Behind the address that a node was said to have
// may be another, of another cluster even, as seen from here.
func (l *conn) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identifyAfter)
	defer cancel()
	health, err := weirv1.NewRateLimiterHealthClient(l.channel).GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	if err != nil {
		return err
	}
	id := health.GetNodeId()
	if l.id != "" && id != l.id {
		return fmt.Errorf("node is %q, not %q", id, l.id)
	}
	if err := l.identity.admit(l.member, id, health.GetCluster()); err != nil {
		return err
	}
	l.nodeID.Store(&id)
	return nil
}

// watch returns when the node has been silent for too long, turns out to be of another cluster than most, or ctx ends.
func (l *conn) watch(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if silence := l.silence(l.live.now()); silence >= brokenAfter {
				return fmt.Errorf("no answer for %v", silence)
			}
			if !l.identity.has(l.member) {
				return errForeign
			}
		}
	}
}

// broken settles everything that waits: its answers cannot come any more.
func (l *conn) broken() {
	l.mu.Lock()
	l.open = false
	l.up.Store(false)
	queue, flights := l.queue, l.flights
	l.queue, l.queuedBytes, l.flights = nil, 0, make(map[uint64]*frame)
	l.silent.Store(0)
	l.mu.Unlock()
	for _, f := range flights {
		l.load.Add(int64(-f.checks))
		f.fail(errBroken, true)
	}
	for _, f := range queue {
		l.load.Add(int64(-f.checks))
		f.fail(errBroken, false)
	}
}

// fail settles all calls of a frame.
func (f *frame) fail(err error, sent bool) {
	for _, k := range f.calls {
		k.settle(nil, err, sent)
	}
}

// send sends frames until ctx or the stream ends.
func (l *conn) send(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.kick:
		}
		for f := l.next(); f != nil; f = l.next() {
			if err := stream.SendMsg(f); err != nil {
				return // receive is told why
			}
		}
	}
}

// receive delivers answers until the stream ends, and says why it has.
func (l *conn) receive(stream grpc.ClientStream) error {
	for {
		var m weirv1.StreamRateLimitsResponse
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		f := l.land(m.GetId())
		if f == nil {
			return fmt.Errorf("an answer to %d, which was not asked", m.GetId())
		}
		if err := l.deliver(f, &m); err != nil {
			return err
		}
	}
}

// land takes the frame off those under way.
func (l *conn) land(id uint64) *frame {
	l.mu.Lock()
	f := l.flights[id]
	delete(l.flights, id)
	if len(l.flights) == 0 {
		l.silent.Store(0)
	} else {
		l.silent.Store(l.live.now())
	}
	waits := len(l.queue) > 0
	l.mu.Unlock()
	if f != nil {
		l.load.Add(int64(-f.checks))
	}
	if waits {
		l.wake()
	}
	return f
}

// deliver settles the calls of a frame, or asks again what the node refuses without
// having counted it.
func (l *conn) deliver(f *frame, m *weirv1.StreamRateLimitsResponse) error {
	switch {
	case m.GetError() != nil:
		l.refused(f, codes.Code(m.GetError().GetCode()), m.GetError().GetMessage())
		return nil
	case len(m.GetResponses()) != f.checks:
		err := fmt.Errorf("%d answers to %d checks", len(m.GetResponses()), f.checks)
		f.fail(errBroken, true)
		return err
	}
	begin := 0
	for _, k := range f.calls {
		end := begin + k.checks
		k.settle(m.GetResponses()[begin:end:end], nil, true)
		begin = end
	}
	f.reset() // an answered frame was sent, so its bytes are not read any more
	l.mu.Lock()
	l.spare = f
	l.mu.Unlock()
	return nil
}

// refused deals with a frame that was refused. An invalid request, or one in a domain that this client has no role for,
// refuses all that travel with it, before any is counted; so the frame is halved until it is found.
func (l *conn) refused(f *frame, code codes.Code, message string) {
	ofOne := code == codes.InvalidArgument || code == codes.PermissionDenied
	if !ofOne || len(f.calls) == 1 {
		if len(f.calls) == 1 && !f.calls[0].batch {
			message = strings.TrimPrefix(strings.TrimPrefix(message, "requests[0]."), "requests[0]: ") // the caller knows of no others
		}
		f.fail(status.Error(code, message), true)
		return
	}
	a, b := f.halve()
	l.mu.Lock()
	if !l.open {
		l.mu.Unlock()
		a.fail(errBroken, false)
		b.fail(errBroken, false)
		return
	}
	l.queue = slices.Insert(l.queue, 0, a, b)
	l.queuedBytes += len(a.bytes) + len(b.bytes)
	l.mu.Unlock()
	l.load.Add(int64(f.checks))
	l.wake()
}
