package client

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
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
