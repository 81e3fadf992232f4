package cluster

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// conn is one connection to a peer. A check appends its request to queue, and sends the queue if no frame is
// under way; otherwise the goroutine that receives its answers sends the next. No timer holds it up, so an
// idle conn adds no latency and a busy one batches by itself, and no goroutine has to be woken to send.
type conn struct {
	dial       func(ctx context.Context) (net.Conn, error)
	frames     prometheus.Counter // sent; set before run
	notice     func()             // called when the breaker may have changed; set before run
	late       func(n int)        // told how many requests were given up; set before run
	redirected redirectFunc       // called under mu; set before run
	healthy    atomic.Bool        // equals breaker.healthy, readable without mu
	crowded    atomic.Int64       // when it had no room for a request last, in nanoseconds since base; 0 before
	// incarnation is the one that the peer has said last, which may be later than the member's; 0 before, or if it has none yet.
	incarnation atomic.Uint64
	base        time.Time // what the conn's stamps count from
	wake        chan struct{}

	undone    func(lost bool) // called when what was counted too late is given back, or that is lost; set before run
	uncertain func(n int)     // told how many requests may be counted and are not answered; set before run
	busyHere  func() bool     // reports whether this node itself is busy; set before run
	called    chan struct{}   // its slot is filled when the peer has called, which may be about to be dialed

	mu           sync.Mutex
	conn         net.Conn           // written to by the goroutine that has taken a frame; guarded by mu; nil while there is none
	next         net.Conn           // takes the place of conn when no frame is under way; guarded by mu; nil if there is none
	breaker      breaker            // guarded by mu
	busy         time.Time          // until when the peer counts as busy, as it has said so; guarded by mu
	pacer        pacer              // guarded by mu
	queue        [][]byte           // frames to be sent, each <= maxFrame; guarded by mu
	queuedBytes  int                // bytes in queue; guarded by mu; <= maxQueue
	inflight     inflight           // guarded by mu
	waiting      int                // requests in inflight; guarded by mu; <= maxPending
	nextID       uint32             // the last id given; guarded by mu
	spare        []byte             // a frame's memory to be used again; guarded by mu
	due          stamp              // of the requests that queue ends with; 0 if it says nothing; guarded by mu
	span         *trace.SpanContext // likewise; nil if they are not traced; guarded by mu
	minorVersion uint8              // up to which the peer reads what was added to connVersion; guarded by mu
	unacked      int                // frames sent that were not answered; guarded by mu; <= maxUnacked
	backlog      int                // takes that the peer has yet to answer, abandoned ones included; guarded by mu
	alarm        *time.Timer        // calls expire; guarded by mu; nil before run
	alarmAt      time.Time          // when it does, or soon after; zero if it does not; guarded by mu
	end          context.CancelFunc // ends the session; guarded by mu; nil before the first
	named        uint64             // the incarnation that the newest view names; guarded by mu; 0 before
}

// redirectFunc is called with the key of a counter that the asked peer does not have, and the mark of the node
// that has it, 0 if the peer does not know. It reports whether another node is to be asked now.
type redirectFunc func(k ring.Key, mark uint64) (elsewhere bool)

// alarmRest is the least time between two looks for what is late on one conn.
const alarmRest = 200 * time.Microsecond

var (
	errOpen     = errors.New("breaker is open")
	errOverflow = errors.New("too much is waiting for the peer already")
	errStalled  = errors.New("too much is waiting for the peer, which does not answer")
)

func newConn(dial func(context.Context) (net.Conn, error), attempt time.Duration) *conn {
	return &conn{
		dial: dial, wake: make(chan struct{}, 1), called: make(chan struct{}, 1),
		breaker: breaker{attempt: attempt}, pacer: pacer{attempt: attempt},
		redirected: func(ring.Key, uint64) bool { return true }, late: func(int) {}, undone: func(bool) {}, uncertain: func(int) {}, busyHere: func() bool { return false },
		base: time.Now(),
	}
}

// giveBackLocked is giveBack without sending, and whether or not the peer is asked at present.
func (c *conn) giveBackLocked(takes []shard.Take, by uint64) error {
	g := &shard.Group{Takes: takes, By: by}
	if c.queuedBytes+stampSize+traceSize+requestSize(g) > maxQueue {
		return errOverflow
	}
	c.appendLocked(returnOf(takes[0].Source), 0, g, 0, nil)
	return nil
}

// appendLocked queues a request of a span, nil if it has none. It is given up when due says, unless that is 0.
func (c *conn) appendLocked(o op, id uint32, g *shard.Group, due stamp, span *trace.SpanContext) {
	last, before := len(c.queue)-1, stampSize
	if last >= 0 && span != c.span {
		before += traceSize
	}
	if last < 0 || len(c.queue[last])+before+requestSize(g) > lengthSize+maxFrame {
		c.queue = append(c.queue, newRequests(c.spare))
		c.spare, c.due, c.span = nil, 0, nil
		last++
		c.queuedBytes += len(c.queue[last])
	}
	size := len(c.queue[last])
	if due != 0 && due != c.due {
		c.queue[last] = appendStamp(c.queue[last], opDue, due)
		c.due = due
	}
	if span != c.span {
		c.queue[last] = appendTrace(c.queue[last], span)
		c.span = span
	}
	c.queue[last] = appendRequest(c.queue[last], o, id, g)
	c.queuedBytes += len(c.queue[last]) - size
}

// giveUpLocked is giveUp for groups that do not wait any more. If there was too little time for
// them, because much else waits that is being answered, or that this node came to look at
// too late, their takes are Overloaded, although the peer may still count them. A peer that
// does not answer at all is not busy.
func (c *conn) giveUpLocked(a *call, unanswered []*shard.Group, now time.Time) {
	c.waiting -= len(unanswered)
	slept := now.Sub(a.due) >= c.pacer.attempt/4 // so it is not the peer's fault
	busy := c.isBusyLocked(now) || c.backlog >= fullFrame && (slept || c.breaker.heard.After(a.sent))
	if busy {
		for _, g := range unanswered {
			overload(g)
		}
	}
	if len(unanswered) > 0 && !busy && !slept {
		c.breaker.timedOut(a.sent, now)
		c.healthy.Store(c.breaker.healthy)
	}
}

// isBusyLocked reports whether an answer is late because this node or the peer has too much to do. Both know
// that of themselves, and the peer says so; a peer that has left a frame unanswered for busySilence is believed no
// more: it may be dead.
func (c *conn) isBusyLocked(now time.Time) bool {
	return (now.Before(c.busy) || c.busyHere()) && !c.pacer.silent(now)
}

// expire gives up what has had its time, and sets the alarm for the others. One timer for
// all: most requests are answered, and a timer for each would cost more than the request.
func (c *conn) expire() {
	now := time.Now()
	c.mu.Lock()
	due, next := c.inflight.takeDue(now)
	for _, w := range due {
		c.giveUpLocked(w.call, w.groups, now)
	}
	c.setAlarmLocked(next, max(next.Sub(now), alarmRest))
	c.mu.Unlock()
	for _, w := range due {
		c.late(len(w.groups))
		w.call.finish(int32(len(w.groups)))
	}
}

// setAlarmLocked has expire called at that time, which is so far away, or never if it is zero.
// A conn that does not run has no alarm.
func (c *conn) setAlarmLocked(at time.Time, away time.Duration) {
	switch c.alarmAt = at; {
	case c.alarm == nil:
	case at.IsZero():
		c.alarm.Stop()
	default:
		c.alarm.Reset(away)
	}
}

// useLocked has conn carry the frames from now on.
func (c *conn) useLocked(conn net.Conn) {
	c.conn = conn
	if to, greeted := conn.(*greetedConn); greeted {
		c.minorVersion = to.minorVersion
		c.incarnation.Store(to.incarnation)
	}
	c.leaveEarlierLocked()
}

// name says which incarnation of the peer the newest view names.
func (c *conn) name(incarnation uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.named = incarnation
	c.leaveEarlierLocked()
}

// leaveEarlierLocked ends the connection if the node at its other end is an earlier life than the view names. Such a life may go on, and takes for
// the later one are not for it. What is queued is not sent.
func (c *conn) leaveEarlierLocked() {
	if c.conn == nil || !c.isEarlierLocked() {
		return
	}
	c.breaker.broken()
	c.healthy.Store(false)
	c.queue, c.queuedBytes = nil, 0
	c.end()
}

// isEarlierLocked reports whether the node at the other end has said that it is an earlier life than the view names.
func (c *conn) isEarlierLocked() bool {
	said := c.incarnation.Load()
	return said != 0 && said < c.named
}

// doubtful reports whether the peer has said nothing for a while, not even to a ping, although it is
// not taken for dead yet.
func (c *conn) doubtful(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.breaker
	return b.healthy && !b.pingSent.IsZero() && b.pingSent.After(b.heard) && now.Sub(b.pingSent) >= probeEvery/2
}

// heardSince reports whether the peer has said something after that instant.
func (c *conn) heardSince(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.heard.After(at)
}

// replaceLocked has the next connection, if there is one, take the place of the one in use, if no frame is under way.
func (c *conn) replaceLocked() {
	if c.next != nil && c.unacked == 0 {
		c.useLocked(c.next)
		c.next = nil
	}
}
