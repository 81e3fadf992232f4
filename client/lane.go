package client

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds and times of a lane.
const (
	maxUnderWay = 4       // frames that are not answered; a node decides up to 8 at once
	maxQueue    = 2 << 20 // bytes that wait to be sent

	stalledAfter  = 50 * time.Millisecond  // without an answer; then others are asked
	brokenAfter   = 3 * time.Second        // without an answer; then the connection is made anew
	lookEvery     = time.Second            // whether that is so
	retryPause    = 100 * time.Millisecond // between two streams
	identifyAfter = time.Second            // for a node to say who it is
)

// lane is a connection to a node with one stream of checks. What is asked queues up as
// frames; one goroutine sends them, up to maxUnderWay at a time, and one receives the
// answers. There is no timer: an idle lane sends at once, and a busy one, while it waits
// for answers, batches by itself.
type lane struct {
	conn   *grpc.ClientConn
	member *member       // whose lane it is; set before run
	id     string        // of the node that is expected; "" for any
	notice func(error)   // called when the lane has come up, with nil, or gone down
	since  func() int64  // the client's clock
	kick   chan struct{} // has room for one; makes send look
	load   atomic.Int64  // checks that are queued or under way
	up     atomic.Bool   // mirrors open, for those who do not hold mu
	silent atomic.Int64  // since when an answer is due, by the client's clock; 0 if none is
	nodeID atomic.Pointer[string]

	mu      sync.Mutex
	open    bool              // there is a stream; guarded by mu
	queue   []*frame          // guarded by mu
	queued  int               // bytes in queue; guarded by mu; <= maxQueue, but for one call or what was refused
	flights map[uint64]*frame // by id; guarded by mu; <= maxUnderWay
	nextID  uint64            // guarded by mu
	spare   *frame            // to be used again; guarded by mu
}

func newLane(conn *grpc.ClientConn, id string, since func() int64, notice func(error)) *lane {
	return &lane{
		conn: conn, id: id, since: since, notice: notice,
		kick: make(chan struct{}, 1), flights: make(map[uint64]*frame),
	}
}

// silence is for how long an answer has been due.
func (l *lane) silence(now int64) time.Duration {
	if since := l.silent.Load(); since != 0 {
		return time.Duration(now - since)
	}
	return 0
}

// usable reports whether l answers, as far as one knows.
func (l *lane) usable(now int64) bool { return l.up.Load() && l.silence(now) < stalledAfter }

// enqueue takes the call in. It settles it, unless it returns errBroken or errFull.
func (l *lane) enqueue(k *call) error {
	l.load.Add(int64(k.checks)) // first, for those who choose while others wait for mu
	l.mu.Lock()
	if err := l.refuseLocked(k); err != nil {
		l.mu.Unlock()
		l.load.Add(int64(-k.checks))
		return err
	}
	last := len(l.queue) - 1
	if last < 0 || !l.queue[last].fits(k) {
		f := l.spare
		if l.spare = nil; f == nil {
			f = new(frame)
		}
		l.queue = append(l.queue, f)
		last++
	}
	l.queue[last].add(k)
	l.queued += len(k.bytes)
	idle := len(l.flights) < maxUnderWay
	l.mu.Unlock()
	if idle {
		l.wake()
	}
	return nil
}

// refuseLocked reports why a call is not taken in.
func (l *lane) refuseLocked(k *call) error {
	switch {
	case !l.open:
		return errBroken
	case l.queued > 0 && l.queued+len(k.bytes) > maxQueue:
		return errFull
	}
	return nil
}

func (l *lane) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// run keeps a stream up until ctx ends.
func (l *lane) run(ctx context.Context) {
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	for {
		err := l.session(ctx)
		l.broken()
		if ctx.Err() != nil {
			return
		}
		l.notice(err)
		pause.Reset(retryPause)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// session is the life of one stream, and says what has ended it.
func (l *lane) session(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stream, err := l.conn.NewStream(ctx, streamDesc, weirv1.RateLimiter_StreamRateLimits_FullMethodName,
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
func (l *lane) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, identifyAfter)
	defer cancel()
	health, err := weirv1.NewRateLimiterHealthClient(l.conn).GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	if err != nil {
		return err
	}
	id := health.GetNodeId()
	if l.id != "" && id != l.id {
		return fmt.Errorf("node is %q, not %q", id, l.id)
	}
	l.nodeID.Store(&id)
	return nil
}

// watch returns when the node has been silent for too long, or ctx ends.
func (l *lane) watch(ctx context.Context) error {
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if silence := l.silence(l.since()); silence >= brokenAfter {
				return fmt.Errorf("no answer for %v", silence)
			}
		}
	}
}

// broken settles everything that waits: its answers cannot come any more.
func (l *lane) broken() {
	l.mu.Lock()
	l.open = false
	l.up.Store(false)
	queue, flights := l.queue, l.flights
	l.queue, l.queued, l.flights = nil, 0, make(map[uint64]*frame)
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
func (l *lane) send(ctx context.Context, stream grpc.ClientStream) {
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

// next takes the frame that is to be sent now, nil if there is none. Whoever is about
// to ask gets the chance to come along.
func (l *lane) next() *frame {
	for seen := 0; l.growsFrom(&seen); {
		runtime.Gosched()
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) > 0 && len(l.flights) < maxUnderWay {
		f := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		l.queued -= len(f.bytes)
		left := f.due.Sub(now)
		if left <= 0 { // its callers have gone, and must not be counted any more
			l.load.Add(int64(-f.checks))
			f.fail(errLate, false)
			continue
		}
		l.nextID++
		f.finish(l.nextID, left)
		l.flights[f.id] = f
		if len(l.flights) == 1 {
			l.silent.Store(l.since())
		}
		return f
	}
	return nil
}

// growsFrom reports whether the queue can be sent, and is longer than when it was last
// seen.
func (l *lane) growsFrom(seen *int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	grows := l.queued > *seen && len(l.flights) < maxUnderWay
	*seen = l.queued
	return grows
}

// receive delivers answers until the stream ends, and says why it has.
func (l *lane) receive(stream grpc.ClientStream) error {
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
func (l *lane) land(id uint64) *frame {
	l.mu.Lock()
	f := l.flights[id]
	delete(l.flights, id)
	switch {
	case len(l.flights) == 0:
		l.silent.Store(0)
	default:
		l.silent.Store(l.since())
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
func (l *lane) deliver(f *frame, m *weirv1.StreamRateLimitsResponse) error {
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
	f.reset() // what was answered was sent, so nobody reads its bytes any more
	l.mu.Lock()
	l.spare = f
	l.mu.Unlock()
	return nil
}

// refused deals with a frame that was refused. An invalid request refuses all that
// travel with it, before any is counted; so the frame is halved until it is found.
func (l *lane) refused(f *frame, code codes.Code, message string) {
	if code != codes.InvalidArgument || len(f.calls) == 1 {
		if len(f.calls) == 1 && !f.calls[0].batch {
			message = strings.TrimPrefix(message, "requests[0].") // the caller knows of no others
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
	l.queued += len(a.bytes) + len(b.bytes)
	l.mu.Unlock()
	l.load.Add(int64(f.checks))
	l.wake()
}
