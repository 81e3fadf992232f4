package client

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

// Bounds and times of a conn.
const (
	maxUnderWay = 4       // frames that are not answered; a node decides up to 8 at once
	maxQueue    = 2 << 20 // bytes that wait to be sent

	stalledAfter  = 50 * time.Millisecond  // without an answer; then others are asked
	brokenAfter   = 3 * time.Second        // without an answer; then it connects again
	lookEvery     = time.Second            // whether that is so
	retryPause    = 100 * time.Millisecond // between two streams
	foreignPause  = time.Second            // if the node is of another cluster
	identifyAfter = time.Second            // for a node to say who it is
)

// conn is a connection to a node with one stream of checks. What is asked queues up as
// frames; one goroutine sends them, up to maxUnderWay at a time, and one receives the
// answers. There is no timer: an idle conn sends at once, and a busy one, while it waits
// for answers, batches by itself.
type conn struct {
	channel  *grpc.ClientConn
	member   *member       // to which it connects; set before run
	identity *identity     // the client's; set before run
	id       string        // of the node that is expected; "" for any
	notice   func(error)   // called when the conn has come up, with nil, or gone down
	noteEnd  func(error)   // called before a conn goes down that has ended by this error
	live     *liveClock    // the client's
	kick     chan struct{} // has room for one; makes send look
	load     atomic.Int64  // checks that are queued or under way
	up       atomic.Bool   // equals open, readable without mu
	silent   atomic.Int64  // since when an answer is due, by live; 0 if none is
	nodeID   atomic.Pointer[string]

	sent      atomic.Uint64 // the largest place of a call that was sent
	abandoned atomic.Bool   // calls were, since the queue was empty, which may still stand in it

	mu          sync.Mutex
	open        bool              // there is a stream; guarded by mu
	queue       []*frame          // guarded by mu
	queuedBytes int               // bytes in queue; guarded by mu; <= maxQueue, except for one call or refused ones
	flights     map[uint64]*frame // by id; guarded by mu; <= maxUnderWay
	nextID      uint64            // guarded by mu
	enqueued    uint64            // how many calls ever were; guarded by mu
	spare       *frame            // to be used again; guarded by mu
}

func newConn(to *grpc.ClientConn, id string, live *liveClock, notice, noteEnd func(error)) *conn {
	return &conn{
		channel: to, id: id, live: live, notice: notice, noteEnd: noteEnd,
		kick: make(chan struct{}, 1), flights: make(map[uint64]*frame),
	}
}

// silence is for how long an answer has been due.
func (l *conn) silence(now int64) time.Duration {
	if since := l.silent.Load(); since != 0 {
		return time.Duration(now - since)
	}
	return 0
}

// usable reports whether l answers, as far as one knows.
func (l *conn) usable(now int64) bool { return l.up.Load() && l.silence(now) < stalledAfter }

// enqueue takes the call in. It settles it, unless it returns errBroken or errFull.
func (l *conn) enqueue(k *call) error {
	l.load.Add(int64(k.checks)) // first, so that pick sees it while others wait for mu
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
	l.enqueued++
	k.place = l.enqueued
	l.queue[last].add(k)
	l.queuedBytes += len(k.bytes)
	idle := len(l.flights) < maxUnderWay
	l.mu.Unlock()
	if idle {
		l.wake()
	}
	return nil
}

// hasSent reports whether a call that was enqueued was sent.
func (l *conn) hasSent(k *call) bool { return k.place <= l.sent.Load() }

// refuseLocked reports why a call is not taken in.
func (l *conn) refuseLocked(k *call) error {
	switch {
	case !l.open:
		return errBroken
	case l.queuedBytes > 0 && l.queuedBytes+len(k.bytes) > maxQueue:
		return errFull
	}
	return nil
}

func (l *conn) wake() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// next returns the frame to send now, nil if there is none. Calls about to be enqueued get the chance to
// join it.
func (l *conn) next() *frame {
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
		l.queuedBytes -= len(f.bytes)
		left := f.due.Sub(now)
		if left <= 0 { // its callers have gone, or are about to: the node was never asked
			l.load.Add(int64(-f.checks))
			f.fail(errFull, false)
			continue
		}
		if l.abandoned.Load() {
			l.load.Add(int64(-f.dropAbandoned()))
			if len(l.queue) == 0 {
				l.abandoned.Store(false)
			}
			if f.checks == 0 {
				continue
			}
		}
		l.nextID++
		l.sent.Store(max(l.sent.Load(), f.calls[len(f.calls)-1].place))
		f.finish(l.nextID, left)
		l.flights[f.id] = f
		if len(l.flights) == 1 {
			l.silent.Store(l.live.now())
			l.live.start()
		}
		return f
	}
	return nil
}

// growsFrom reports whether the queue can be sent, is less than a frame, and is longer than when
// it was last seen. A full frame gains nothing by waiting, and would wait for all who
// are about to ask, however many these are.
func (l *conn) growsFrom(seen *int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	grows := l.queuedBytes > *seen && len(l.queue) == 1 && len(l.flights) < maxUnderWay
	*seen = l.queuedBytes
	return grows
}
