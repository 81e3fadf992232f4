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
func (c *conn) run(ctx context.Context) {
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	for {
		err := c.session(ctx)
		if ctx.Err() == nil {
			c.noteEnd(err) // before the calls under way learn that they are not answered
		}
		c.broken()
		if ctx.Err() != nil {
			return
		}
		c.notice(err)
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
func (c *conn) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := c.channel.NewStream(ctx, streamDesc, weirv1.RateLimiter_StreamRateLimits_FullMethodName,
		frameCodec, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if err := c.identify(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.open = true
	c.up.Store(true)
	c.mu.Unlock()
	c.notice(nil)
	var both sync.WaitGroup
	both.Go(func() { cancel(c.receive(stream)) })
	both.Go(func() { c.send(ctx, stream) })
	cancel(c.watch(ctx))
	both.Wait()
	return context.Cause(ctx)
}

// identify asks the node who it is. Behind the address that a node was said to have
// may be another, of another cluster even, as seen from here.
func (c *conn) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identifyAfter)
	defer cancel()
	health, err := weirv1.NewRateLimiterHealthClient(c.channel).GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	if err != nil {
		return err
	}
	id := health.GetNodeId()
	if c.id != "" && id != c.id {
		return fmt.Errorf("node is %q, not %q", id, c.id)
	}
	if err := c.identity.admit(c.member, id, health.GetCluster()); err != nil {
		return err
	}
	c.nodeID.Store(&id)
	return nil
}

// watch returns when the node has been silent for too long, turns out to be of another cluster than most, or ctx ends.
func (c *conn) watch(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if silence := c.silence(c.live.now()); silence >= brokenAfter {
				return fmt.Errorf("no answer for %v", silence)
			}
			if !c.identity.has(c.member) {
				return errForeign
			}
		}
	}
}

// broken settles everything that waits: its answers cannot come any more.
func (c *conn) broken() {
	c.mu.Lock()
	c.open = false
	c.up.Store(false)
	queue, flights := c.queue, c.flights
	c.queue, c.queuedBytes, c.flights = nil, 0, make(map[uint64]*frame)
	c.silent.Store(0)
	c.mu.Unlock()
	for _, f := range flights {
		c.load.Add(int64(-f.checks))
		f.fail(errBroken, true)
	}
	for _, f := range queue {
		c.load.Add(int64(-f.checks))
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
func (c *conn) send(ctx context.Context, stream grpc.ClientStream) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.kick:
		}
		for f := c.next(); f != nil; f = c.next() {
			if err := stream.SendMsg(f); err != nil {
				return // receive is told why
			}
		}
	}
}

// receive delivers answers until the stream ends, and says why it has.
func (c *conn) receive(stream grpc.ClientStream) error {
	for {
		var m weirv1.StreamRateLimitsResponse
		if err := stream.RecvMsg(&m); err != nil {
			return err
		}
		f := c.land(m.GetId())
		if f == nil {
			return fmt.Errorf("an answer to %d, which was not asked", m.GetId())
		}
		c.sawView(m.GetView())
		if err := c.deliver(f, &m); err != nil {
			return err
		}
	}
}

// land takes the frame off those under way.
func (c *conn) land(id uint64) *frame {
	c.mu.Lock()
	f := c.flights[id]
	delete(c.flights, id)
	if len(c.flights) == 0 {
		c.silent.Store(0)
	} else {
		c.silent.Store(c.live.now())
	}
	waits := len(c.queue) > 0
	c.mu.Unlock()
	if f != nil {
		c.load.Add(int64(-f.checks))
	}
	if waits {
		c.wake()
	}
	return f
}

// deliver settles the calls of a frame, or asks again what the node refuses without
// having counted it.
func (c *conn) deliver(f *frame, m *weirv1.StreamRateLimitsResponse) error {
	switch {
	case m.GetError() != nil:
		c.refused(f, codes.Code(m.GetError().GetCode()), m.GetError().GetMessage())
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
	c.mu.Lock()
	c.spare = f
	c.mu.Unlock()
	return nil
}

// refused deals with a frame that was refused. An invalid request, or one in a domain that this client has no role for,
// refuses all that travel with it, before any is counted; so the frame is halved until it is found.
func (c *conn) refused(f *frame, code codes.Code, message string) {
	ofOne := code == codes.InvalidArgument || code == codes.PermissionDenied
	if !ofOne || len(f.calls) == 1 {
		if len(f.calls) == 1 && !f.calls[0].batch {
			message = strings.TrimPrefix(strings.TrimPrefix(message, "requests[0]."), "requests[0]: ") // the caller knows of no others
		}
		f.fail(status.Error(code, message), true)
		return
	}
	a, b := f.halve()
	c.mu.Lock()
	if !c.open {
		c.mu.Unlock()
		a.fail(errBroken, false)
		b.fail(errBroken, false)
		return
	}
	c.queue = slices.Insert(c.queue, 0, a, b)
	c.queuedBytes += len(a.bytes) + len(b.bytes)
	c.mu.Unlock()
	c.load.Add(int64(f.checks))
	c.wake()
}
