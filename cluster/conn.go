package cluster

import (
	"context"
	"errors"
	"math"
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

// call is one caller's wait for the answers to some requests.
type call struct {
	left atomic.Int32  // requests neither answered nor given up, plus 1 while the caller adds more
	done chan struct{} // has room for one; sent to by the goroutine that takes left to 0
	sent time.Time
	due  time.Time // when the requests that are not answered are given up

	again atomic.Int64 // nanoseconds after which unanswered requests should be asked again

	how  role               // as what the peer is asked
	span *trace.SpanContext // of the hop; of what is enqueued next; nil if the check is not traced

	one [1]*shard.Group // what is asked, if it is one
	hot [1]*hotCounter  // likewise
}

// more keeps what an answer to g says in addition to its decisions, if those fit. c may be nil.
func (a *call) more(g *shard.Group, c *hotCounter, h *answerHead, fits bool) {
	raise(&a.again, int64(h.wait))
	if !fits {
		return
	}
	h.deferAnswer(g)
	g.Waits = h.wait > 0 && g.Deferred == 0
	if h.lent > 0 {
		at := g.Takes[0].Decision.At
		g.TokenLease = shard.TokenLease{Tokens: h.lent, At: at, Until: at + h.lentFor}
	}
	if c != nil && g.ForNode {
		c.leased = h.leased
	}
}

// finish takes n requests off the wait.
func (a *call) finish(n int32) {
	if n > 0 && a.left.Add(-n) == 0 {
		a.done <- struct{}{}
	}
}

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

// enqueue appends a request for every group, and returns the id of the first; the others follow it. Those
// that are ForNode, with a hot counter, are asked as such; hot may be nil. Answers will be written to the
// groups and counted off a, until when groups and hot must not change. What is not answered in time is
// given up and counted off as well. If it fails, nothing was appended and a is untouched.
func (c *conn) enqueue(a *call, groups []*shard.Group, hot []*hotCounter) (first uint32, err error) {
	if !c.healthy.Load() {
		return 0, errOpen
	}
	size, takes := stampSize+traceSize, 0
	for _, g := range groups {
		size += requestSize(g)
		takes += len(g.Takes)
	}
	c.mu.Lock()
	if err := c.refuseLocked(len(groups), takes, size, a.sent); err != nil {
		c.mu.Unlock()
		if errors.Is(err, errOverflow) {
			c.crowded.Store(int64(a.sent.Sub(c.base)))
		}
		return 0, err
	}
	c.backlog += takes
	a.left.Add(int32(len(groups)))
	if c.nextID > math.MaxUint32-maxPending {
		c.nextID = 0 // those of the last round were answered or given up long ago
	}
	first = c.nextID + 1 // pingID is no request's
	c.inflight.add(waiting{a, first, groups, hot})
	c.waiting += len(groups)
	if c.alarmAt.IsZero() || a.due.Before(c.alarmAt) {
		c.setAlarmLocked(a.due, a.due.Sub(a.sent))
	}
	c.appendGroupsLocked(a, groups, hot)
	idle := c.unacked < maxUnacked
	c.mu.Unlock()
	if idle { // else the goroutine that receives the answer to the frame under way sends the next
		c.pushAll()
	}
	return first, nil
}

// appendGroupsLocked appends the requests of a call, with the ids that follow the last one.
func (c *conn) appendGroupsLocked(a *call, groups []*shard.Group, hot []*hotCounter) {
	due, span := stampOf(c.base, a.due), a.span
	if c.minorVersion < 1 {
		span = nil
	}
	for i, g := range groups {
		c.nextID++
		o := opOf(g)
		switch {
		case a.how != asOwner:
			o = o.of(a.how)
		case g.ForNode && hot != nil && hot[i] != nil:
			o = opHot
		}
		c.appendLocked(o, c.nextID, g, due, span)
	}
}

// refuseLocked returns an error if the queue has no room for the requests, with their takes in size bytes, and nil
// if it has.
func (c *conn) refuseLocked(requests, takes, size int, now time.Time) error {
	stalled := c.pacer.stalled(now)
	full := c.queuedBytes+size > maxQueue || c.waiting+requests > maxPending
	switch {
	case !c.breaker.healthy: // it may have broken since, without an answer
		return errOpen
	case stalled && c.isBusyLocked(now): // what comes now would be late as well
		return errOverflow
	case full && stalled:
		return errStalled
	case full, !stalled && c.backlog > 0 && c.backlog+takes > c.pacer.most():
		return errOverflow
	}
	return nil
}

// giveBack sends takes to be returned, all of them decided by one source, and does not wait. Unless it
// is 0, by is the mark of the node that has decided them in the place of the peer.
func (c *conn) giveBack(takes []shard.Take, by uint64) error {
	err := c.queueReturn(takes, by)
	if err == nil {
		c.pushAll()
	}
	return err
}

// queueReturn is giveBack without sending: with what is asked next, or at the next pushAll.
func (c *conn) queueReturn(takes []shard.Take, by uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.breaker.healthy {
		return errOpen
	}
	return c.giveBackLocked(takes, by)
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

// fill fills a channel that has room for one, unless it is full.
func fill(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// giveUp stops waiting for those of the requests from first on that were not
// answered, because their caller does not wait any more, and returns how many they were. When a
// has no requests left anywhere, no answer will be written to any of its groups any more.
func (c *conn) giveUp(a *call, first uint32, now time.Time) (late int) {
	c.mu.Lock()
	unanswered := c.inflight.take(a, first)
	c.giveUpLocked(a, unanswered, now)
	c.mu.Unlock()
	c.late(len(unanswered))
	a.finish(int32(len(unanswered)))
	return len(unanswered)
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

// rests reports whether nothing is queued and the peer has answered every frame, or cannot, as
// the connection is broken.
func (c *conn) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.breaker.healthy || len(c.queue) == 0 && c.unacked == 0
}

// run keeps the connection up until ctx ends.
func (c *conn) run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	alarm := time.AfterFunc(connIdle, c.expire)
	alarm.Stop()
	c.mu.Lock()
	c.alarm = alarm
	c.mu.Unlock()
	for ctx.Err() == nil {
		began := time.Now()
		c.session(ctx, tick.C)
		pause := probeEvery // a peer that breaks every connection at once must not keep us busy
		if c.healthy.Load() {
			pause = redialEvery
		}
		c.broken()
		c.notice()
		if pause -= time.Since(began); pause <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-c.called: // it has just been started, as a rule
		}
	}
}

// hears records that the peer has called this node. A broken connection then connects again at once.
func (c *conn) hears() {
	c.mu.Lock()
	broken := c.conn == nil
	c.mu.Unlock()
	if broken {
		fill(c.called)
	}
}

// broken gives up everything that waits: its answers cannot come any more.
func (c *conn) broken() {
	c.mu.Lock()
	c.breaker.broken()
	c.pacer.broken()
	c.healthy.Store(false)
	lost, uncertain := c.inflight.waiting(), 0
	if c.unacked > 0 { // else nothing of it was sent
		uncertain = countable(lost)
	}
	c.inflight, c.waiting = inflight{}, 0
	c.conn, c.next, c.queue, c.queuedBytes, c.unacked, c.backlog, c.busy, c.minorVersion = nil, nil, nil, 0, 0, 0, time.Time{}, 0
	c.setAlarmLocked(time.Time{}, 0)
	c.mu.Unlock()
	c.uncertain(uncertain)
	for _, w := range lost {
		if w.call != nil {
			w.call.finish(int32(len(w.groups)))
		}
	}
}

// session is the life of one connection, and of those that take its place without a break: one goroutine sends, one receives of each, and this
// one keeps the time, because a peer that reads no more blocks the one that sends.
func (c *conn) session(ctx context.Context, tick <-chan time.Time) {
	conn, err := c.dial(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.mu.Lock()
	c.end = cancel
	c.breaker.connected(time.Now())
	c.useLocked(conn)
	c.mu.Unlock()
	r := renewal{conn: c, used: conn, end: cancel}
	r.running.Go(func() { r.receive(conn) })
	r.running.Go(func() { defer cancel(); c.send(ctx) })
	for alive := c.tick(); alive && ctx.Err() == nil; { // the first ping closes the breaker
		select {
		case <-ctx.Done():
		case <-tick:
			alive = c.tick()
			r.look(ctx)
		}
	}
	cancel()
	r.close() // ends all; what they say no longer matters
	r.running.Wait()
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
