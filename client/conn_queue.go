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
	member   *member          // to which it connects; set before run
	identity *clusterIdentity // the client's; set before run
	id       string           // of the node that is expected; "" for any
	sawView  func(uint64)     // called with the number of the view of each answer; set before run
	notice   func(error)      // called when the conn has come up, with nil, or gone down
	noteEnd  func(error)      // called before a conn goes down that has ended by this error
	live     *runClock        // the client's
	kick     chan struct{}    // has room for one; makes send look
	load     atomic.Int64     // checks that are queued or under way
	up       atomic.Bool      // equals open, readable without mu
	silent   atomic.Int64     // since when an answer is due, by live; 0 if none is
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

func newConn(to *grpc.ClientConn, id string, live *runClock, notice, noteEnd func(error)) *conn {
	return &conn{
		channel: to, id: id, live: live, notice: notice, noteEnd: noteEnd,
		kick: make(chan struct{}, 1), flights: make(map[uint64]*frame),
	}
}

// silence is for how long an answer has been due.
func (c *conn) silence(now int64) time.Duration {
	if since := c.silent.Load(); since != 0 {
		return time.Duration(now - since)
	}
	return 0
}

// usable reports whether c answers, as far as one knows.
func (c *conn) usable(now int64) bool { return c.up.Load() && c.silence(now) < stalledAfter }

// enqueue takes the call in. It settles it, unless it returns errBroken or errFull.
func (c *conn) enqueue(k *call) error {
	c.load.Add(int64(k.checks)) // first, so that pick sees it while others wait for mu
	c.mu.Lock()
	if err := c.refuseLocked(k); err != nil {
		c.mu.Unlock()
		c.load.Add(int64(-k.checks))
		return err
	}
	last := len(c.queue) - 1
	if last < 0 || !c.queue[last].fits(k) {
		f := c.spare
		if c.spare = nil; f == nil {
			f = new(frame)
		}
		c.queue = append(c.queue, f)
		last++
	}
	c.enqueued++
	k.place = c.enqueued
	c.queue[last].add(k)
	c.queuedBytes += len(k.bytes)
	idle := len(c.flights) < maxUnderWay
	c.mu.Unlock()
	if idle {
		c.wake()
	}
	return nil
}

// hasSent reports whether a call that was enqueued was sent.
func (c *conn) hasSent(k *call) bool { return k.place <= c.sent.Load() }

// refuseLocked reports why a call is not taken in.
func (c *conn) refuseLocked(k *call) error {
	switch {
	case !c.open:
		return errBroken
	case c.queuedBytes > 0 && c.queuedBytes+len(k.bytes) > maxQueue:
		return errFull
	}
	return nil
}

func (c *conn) wake() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// next returns the frame to send now, nil if there is none. Calls about to be enqueued get the chance to
// join it.
func (c *conn) next() *frame {
	for seen := 0; c.growsFrom(&seen); {
		runtime.Gosched()
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 && len(c.flights) < maxUnderWay {
		f := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		c.queuedBytes -= len(f.bytes)
		left := f.due.Sub(now)
		if left <= 0 { // its callers have gone, or are about to: the node was never asked
			c.load.Add(int64(-f.checks))
			f.fail(errFull, false)
			continue
		}
		if c.abandoned.Load() {
			c.load.Add(int64(-f.dropAbandoned()))
			if len(c.queue) == 0 {
				c.abandoned.Store(false)
			}
			if f.checks == 0 {
				continue
			}
		}
		c.nextID++
		c.sent.Store(max(c.sent.Load(), f.calls[len(f.calls)-1].place))
		f.finish(c.nextID, left)
		c.flights[f.id] = f
		if len(c.flights) == 1 {
			c.silent.Store(c.live.now())
			c.live.start()
		}
		return f
	}
	return nil
}

// growsFrom reports whether the queue can be sent, is less than a frame, and is longer than when
// it was last seen. A full frame gains nothing by waiting, and would wait for all who
// are about to ask, however many these are.
func (c *conn) growsFrom(seen *int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	grows := c.queuedBytes > *seen && len(c.queue) == 1 && len(c.flights) < maxUnderWay
	*seen = c.queuedBytes
	return grows
}
