package cluster

import (
	"context"
	"errors"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// lane is one link to a peer. Whoever asks appends the question to queue, and sends
// what has queued up if no frame is under way; otherwise whoever receives its answers
// sends the next. No timer holds it up, so an idle lane adds no latency and a busy one
// batches by itself, and no goroutine has to be woken to send.
type lane struct {
	dial   func(ctx context.Context) (net.Conn, error)
	frames prometheus.Counter // sent; set before run
	notice func()             // called when the breaker may have changed; set before run
	late   func(n int)        // told how many questions were given up; set before run
	moved  movedFunc          // called under mu; set before run
	closed atomic.Bool        // mirrors breaker.closed, for those who do not hold mu
	wake   chan struct{}
	called chan struct{} // holds a token when the peer has called, which may be about to be dialed

	mu      sync.Mutex
	conn    net.Conn    // written to by whoever has taken a frame; guarded by mu; nil while there is none
	breaker breaker     // guarded by mu
	pace    pace        // guarded by mu
	queue   [][]byte    // frames to be sent, each <= maxFrame; guarded by mu
	queued  int         // bytes in queue; guarded by mu; <= maxQueue
	pending pending     // guarded by mu
	waiting int         // questions in pending; guarded by mu; <= maxPending
	nextID  uint32      // the last id given; guarded by mu
	spare   []byte      // a frame's memory to be used again; guarded by mu
	unacked int         // frames sent that were not answered; guarded by mu; <= maxUnacked
	backlog int         // takes that the peer has yet to answer, whoever waits; guarded by mu
	alarm   *time.Timer // calls expire; guarded by mu; nil before run
	alarmAt time.Time   // when it does, or soon after; zero if it does not; guarded by mu
}

// movedFunc is told that the counter of that key is not with the peer that was asked, and
// the mark of who has it, 0 if the peer does not know.
type movedFunc func(k ring.Key, mark uint64)

// ask is one caller's wait for the answers to some questions.
type ask struct {
	left atomic.Int32  // questions neither answered nor given up, plus 1 while the caller adds more
	done chan struct{} // has room for one; sent to by whoever takes left to 0
	sent time.Time
	due  time.Time // when the questions that are not answered are given up

	again atomic.Int64 // nanoseconds after which unanswered questions should be asked again

	how asked // as what the peer is asked

	one [1]*shard.Group // what is asked, if it is one
	hot [1]*hotCounter  // likewise
}

// more keeps what an answer to g says beside its decisions, if those fit. c may be nil.
func (a *ask) more(g *shard.Group, c *hotCounter, h *answerHead, fits bool) {
	raise(&a.again, int64(h.wait))
	if !fits {
		return
	}
	h.hold(g)
	g.Waits = h.wait > 0 && g.Held == 0
	if h.lent > 0 {
		at := g.Takes[0].Decision.At
		g.Loan = shard.Loan{Tokens: h.lent, At: at, Until: at + h.lentFor}
	}
	if c != nil {
		c.promised = h.promised
	}
}

// finish takes n questions off the wait.
func (a *ask) finish(n int32) {
	if n > 0 && a.left.Add(-n) == 0 {
		a.done <- struct{}{}
	}
}

// alarmRest is the least time between two looks for what is late on one lane.
const alarmRest = 200 * time.Microsecond

var (
	errOpen     = errors.New("breaker is open")
	errOverflow = errors.New("too much is waiting for the peer already")
	errStalled  = errors.New("too much is waiting for the peer, which does not answer")
)

func newLane(dial func(context.Context) (net.Conn, error), attempt time.Duration) *lane {
	return &lane{
		dial: dial, wake: make(chan struct{}, 1), called: make(chan struct{}, 1),
		breaker: breaker{attempt: attempt}, pace: pace{attempt: attempt},
		moved: func(ring.Key, uint64) {}, late: func(int) {},
	}
}

// enqueue appends a question for every group, and returns the id of the first;
// the others follow it. Those beside which a hot counter stands are asked as such; hot
// may be nil. Answers will be written to the groups and counted off a, until when groups
// and hot must not change. What is not answered in time is given up and counted off as well.
// If it fails, nothing was appended and a is untouched.
func (l *lane) enqueue(a *ask, groups []*shard.Group, hot []*hotCounter) (first uint32, err error) {
	if !l.closed.Load() {
		return 0, errOpen
	}
	size, takes := 0, 0
	for _, g := range groups {
		size += questionSize(g)
		takes += len(g.Takes)
	}
	l.mu.Lock()
	if err := l.refuseLocked(len(groups), takes, size, a.sent); err != nil {
		l.mu.Unlock()
		return 0, err
	}
	l.backlog += takes
	a.left.Add(int32(len(groups)))
	if l.nextID > math.MaxUint32-maxPending {
		l.nextID = 0 // those of the last round were answered or given up long ago
	}
	first = l.nextID + 1 // pingID is no question's
	l.pending.add(waiting{a, first, groups, hot})
	l.waiting += len(groups)
	if l.alarmAt.IsZero() || a.due.Before(l.alarmAt) {
		l.setAlarmLocked(a.due, a.due.Sub(a.sent))
	}
	for i, g := range groups {
		l.nextID++
		o := opOf(g)
		switch {
		case a.how != asOwner:
			o = o.of(a.how)
		case hot != nil && hot[i] != nil:
			o = opHot
		}
		l.appendLocked(o, l.nextID, g)
	}
	idle := l.unacked < maxUnacked
	l.mu.Unlock()
	if idle { // else whoever receives the answer to the frame under way sends the next
		l.pushAll()
	}
	return first, nil
}

// refuseLocked reports why so many questions, with so many takes in so many bytes, are
// not taken in.
func (l *lane) refuseLocked(questions, takes, size int, now time.Time) error {
	stalled := l.pace.stalled(now)
	full := l.queued+size > maxQueue || l.waiting+questions > maxPending
	switch {
	case !l.breaker.closed: // it may have broken since, and nobody would answer
		return errOpen
	case full && stalled:
		return errStalled
	case full, !stalled && l.backlog > 0 && l.backlog+takes > l.pace.most():
		return errOverflow
	}
	return nil
}

// giveBack sends takes to be returned, all of them decided from copies or none, and does
// not wait.
func (l *lane) giveBack(takes []shard.Take) error {
	g, o := &shard.Group{Takes: takes}, opReturn
	if takes[0].Source == shard.Provisional {
		o = o.of(asStandby)
	}
	l.mu.Lock()
	switch {
	case !l.breaker.closed:
		l.mu.Unlock()
		return errOpen
	case l.queued+questionSize(g) > maxQueue:
		l.mu.Unlock()
		return errOverflow
	}
	l.appendLocked(o, 0, g)
	l.mu.Unlock()
	l.pushAll()
	return nil
}

func (l *lane) appendLocked(o op, id uint32, g *shard.Group) {
	last := len(l.queue) - 1
	if last < 0 || len(l.queue[last])+questionSize(g) > lengthSize+maxFrame {
		l.queue = append(l.queue, newFrame(l.spare))
		l.spare = nil
		last++
		l.queued += len(l.queue[last])
	}
	before := len(l.queue[last])
	l.queue[last] = appendQuestion(l.queue[last], o, id, g)
	l.queued += len(l.queue[last]) - before
}

func (l *lane) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// giveUp stops waiting for those of the questions from first on that were not
// answered, because their caller does not wait any more, and returns how many they were. When a
// has no questions left anywhere, no answer will be written to any of its groups any more.
func (l *lane) giveUp(a *ask, first uint32, now time.Time) (late int) {
	l.mu.Lock()
	unanswered := l.pending.take(a, first)
	l.giveUpLocked(a, unanswered, now)
	l.mu.Unlock()
	l.late(len(unanswered))
	a.finish(int32(len(unanswered)))
	return len(unanswered)
}

// giveUpLocked is giveUp for groups that do not wait any more. If there was too little time for
// them, because much else waits that is being answered, or that this node came to look at
// too late, their takes are Overloaded, although the peer may still count them. A peer that
// does not answer at all is not busy.
func (l *lane) giveUpLocked(a *ask, unanswered []*shard.Group, now time.Time) {
	l.waiting -= len(unanswered)
	slept := now.Sub(a.due) >= l.pace.attempt/4 // so it is not the peer's fault
	busy := l.backlog >= fullFrame && (slept || l.breaker.heard.After(a.sent))
	if busy {
		for _, g := range unanswered {
			overload(g)
		}
	}
	if len(unanswered) > 0 && !busy && !slept {
		l.breaker.timedOut(a.sent, now)
		l.closed.Store(l.breaker.closed)
	}
}

// expire gives up what has had its time, and sets the alarm for the others. One timer for
// all: most questions are answered, and a timer for each would cost more than the question.
func (l *lane) expire() {
	now := time.Now()
	l.mu.Lock()
	due, next := l.pending.takeDue(now)
	for _, w := range due {
		l.giveUpLocked(w.ask, w.groups, now)
	}
	l.setAlarmLocked(next, max(next.Sub(now), alarmRest))
	l.mu.Unlock()
	for _, w := range due {
		l.late(len(w.groups))
		w.ask.finish(int32(len(w.groups)))
	}
}

// setAlarmLocked has expire called at that time, which is so far away, or never if it is zero.
// A lane that does not run has no alarm.
func (l *lane) setAlarmLocked(at time.Time, away time.Duration) {
	switch l.alarmAt = at; {
	case l.alarm == nil:
	case at.IsZero():
		l.alarm.Stop()
	default:
		l.alarm.Reset(away)
	}
}

// rests reports whether nothing is queued and the peer has answered every frame, or cannot, as
// the link is broken.
func (l *lane) rests() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.breaker.closed || len(l.queue) == 0 && l.unacked == 0
}

// run keeps the link up until ctx ends.
func (l *lane) run(ctx context.Context) {
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	alarm := time.AfterFunc(linkIdle, l.expire)
	alarm.Stop()
	l.mu.Lock()
	l.alarm = alarm
	l.mu.Unlock()
	for ctx.Err() == nil {
		began := time.Now()
		l.session(ctx, tick.C)
		pause := probeEvery // a peer that breaks every link at once must not keep us busy
		if l.closed.Load() {
			pause = redialEvery
		}
		l.broken()
		l.notice()
		if pause -= time.Since(began); pause <= 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-l.called: // it has just been started, as a rule
		}
	}
}

// hears takes note that the peer has called this node. A link that is broken is made anew at once then.
func (l *lane) hears() {
	l.mu.Lock()
	broken := l.conn == nil
	l.mu.Unlock()
	if !broken {
		return
	}
	select {
	case l.called <- struct{}{}:
	default:
	}
}

// broken gives up everything that waits: its answers cannot come any more.
func (l *lane) broken() {
	l.mu.Lock()
	l.breaker.broken()
	l.pace.broken()
	l.closed.Store(false)
	lost := l.pending.waiting()
	l.pending, l.waiting = pending{}, 0
	l.conn, l.queue, l.queued, l.unacked, l.backlog = nil, nil, 0, 0, 0
	l.setAlarmLocked(time.Time{}, 0)
	l.mu.Unlock()
	for _, w := range lost {
		w.ask.finish(int32(len(w.groups)))
	}
}

// session is the life of one link: one goroutine sends, one receives, and this one
// keeps the time, because a peer that reads no more blocks the one that sends.
func (l *lane) session(ctx context.Context, tick <-chan time.Time) {
	conn, err := l.dial(ctx)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.mu.Lock()
	l.conn = conn
	l.breaker.connected(time.Now())
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { defer cancel(); l.receive(conn) })
	both.Go(func() { defer cancel(); l.send(ctx) })
	for alive := l.tick(); alive && ctx.Err() == nil; { // the first ping closes the breaker
		select {
		case <-ctx.Done():
		case <-tick:
			alive = l.tick()
		}
	}
	cancel()
	_ = conn.Close() // ends both; what it says no longer matters
	both.Wait()
}

// send sends what is too large for others to wait for.
func (l *lane) send(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		}
		if frame, conn := l.takeFrame(maxFrame); frame != nil && !l.write(conn, frame) {
			return
		}
	}
}

// push sends the next frame, if none is under way. A small one fits into the
// connection's buffer, as the peer has read all that was sent before: so it does not
// block. A large one is left to send.
func (l *lane) push() {
	frame, conn := l.takeFrame(maxDirect)
	if frame != nil {
		_ = l.write(conn, frame) // receive notices as well
	}
}

func (l *lane) write(conn net.Conn, frame []byte) bool {
	l.frames.Inc()
	if err := writeFrame(conn, frame); err != nil {
		return false
	}
	l.reuse(frame)
	return true
}

// pushAll is push for one who has just asked: whoever is about to ask gets the chance
// to come along.
func (l *lane) pushAll() {
	for seen := -1; l.growsFrom(&seen); {
		runtime.Gosched()
	}
	l.push()
}

// growsFrom reports whether the queue can be sent, and is longer than when it was last
// seen.
func (l *lane) growsFrom(seen *int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	grows := l.queued > *seen && l.unacked < maxUnacked
	*seen = l.queued
	return grows
}

// doubtful reports whether the peer has said nothing for a while, not even to a ping, although it is
// not taken for dead yet.
func (l *lane) doubtful(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.breaker
	return b.closed && !b.pingSent.IsZero() && b.pingSent.After(b.heard) && now.Sub(b.pingSent) >= probeEvery/2
}

// heardSince reports whether the peer has said something after that instant.
func (l *lane) heardSince(at time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.breaker.heard.After(at)
}

// greet has a peer asked again that has called by itself.
func (l *lane) greet(now time.Time) {
	l.mu.Lock()
	if l.conn != nil {
		l.breaker.greeted(now)
		l.closed.Store(true)
	}
	l.mu.Unlock()
	l.notice()
}

// tick keeps the breaker's time. It is false if the link is dead.
func (l *lane) tick() (alive bool) {
	now := time.Now()
	l.mu.Lock()
	ping := l.breaker.tick(now)
	alive = now.Sub(l.breaker.heard) < linkIdle
	l.closed.Store(l.breaker.closed)
	if ping {
		l.appendLocked(opPing, pingID, &shard.Group{})
	}
	l.mu.Unlock()
	l.notice()
	if ping { // left to send: whoever keeps the time must not wait for the peer to read
		l.kick()
	}
	return alive
}

// takeFrame returns the frame to be sent now, and where to; nil if there is none. If
// it is longer than most, it is left for send.
func (l *lane) takeFrame(most int) ([]byte, net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) == 0 || l.unacked == maxUnacked || l.conn == nil {
		return nil, nil
	}
	frame := l.queue[0]
	if len(frame) > lengthSize+most {
		l.kick()
		return nil, nil
	}
	l.queue[0] = nil
	l.queue = l.queue[1:]
	l.queued -= len(frame)
	l.unacked++
	l.pace.sending(time.Now())
	return frame, l.conn
}

// reuse takes back the memory of a frame that was sent.
func (l *lane) reuse(frame []byte) {
	if cap(frame) > keepBytes {
		return
	}
	l.mu.Lock()
	l.spare = frame
	l.mu.Unlock()
}

func (l *lane) receive(conn net.Conn) {
	for frames := newFrameReader(conn, maxAnswers); ; {
		frame, err := frames.next()
		if err != nil {
			return
		}
		if err := l.deliver(frame); err != nil {
			return // a peer that talks nonsense is as good as gone
		}
	}
}

// deliver writes the answers of one frame to the groups that wait for them.
func (l *lane) deliver(frame []byte) error {
	now := time.Now()
	r := openFrame(frame)
	answered := 0 // takes
	for r.more() {
		l.mu.Lock()
		for n := 0; n < deliverAtOnce && r.more(); n++ {
			answered += l.deliverLocked(&r, now)
		}
		l.closed.Store(l.breaker.closed)
		l.mu.Unlock()
	}
	l.mu.Lock()
	l.unacked = max(0, l.unacked-1) // a frame that nobody asked for is no licence to send more
	l.backlog = max(0, l.backlog-answered)
	l.pace.answered(answered, now)
	l.mu.Unlock()
	l.pushAll()
	return r.err
}

// deliverLocked reads an answer, writes it to the group that waits for it, if one still
// does, and returns how many takes it has.
func (l *lane) deliverLocked(r *reader, now time.Time) (takes int) {
	h := r.answerHead()
	if h.id == pingID {
		if l.breaker.pong(now) && l.breaker.tick(now) {
			l.appendLocked(opPing, pingID, &shard.Group{})
		}
	} else {
		l.breaker.answered(now)
	}
	a, g, c, err := l.nextLocked(h.id)
	if err != nil {
		r.fail(err)
	}
	fits := a != nil && h.takes == len(g.Takes)
	if fits {
		g.Allowed = h.allowed
	}
	if h.moved > 0 {
		l.readMovedLocked(r, &h, g, fits)
	}
	for i := 0; i < h.takes && h.decided(); i++ {
		d := r.decision()
		if fits && r.err == nil {
			g.Takes[i].Decision, g.Takes[i].Source = d, h.source
		}
	}
	if a != nil {
		a.more(g, c, &h, fits && r.err == nil)
		a.finish(1)
	}
	return h.takes
}

// readMovedLocked reads which takes of g live elsewhere, if g fits the answer.
func (l *lane) readMovedLocked(r *reader, h *answerHead, g *shard.Group, fits bool) {
	for range h.moved {
		i, mark := r.movedTake(h.takes)
		if fits && r.err == nil {
			g.Takes[i].Source = shard.Moved
			l.moved(g.Takes[i].Key, mark)
		}
	}
}

// nextLocked takes the question of that id off those that wait, if somebody still does. A
// pong, which nobody waits for, may come between others.
func (l *lane) nextLocked(id uint32) (*ask, *shard.Group, *hotCounter, error) {
	if id == pingID {
		return nil, nil, nil, nil
	}
	a, g, c, err := l.pending.next(id)
	if a != nil {
		l.waiting--
	}
	return a, g, c, err
}
