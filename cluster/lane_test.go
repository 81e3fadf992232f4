package cluster

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/weirlimit/weir/shard"
)

// closedLane is a lane that takes questions in, and sends none.
func closedLane() *lane {
	l := newLane(nil, DefaultAttemptTimeout)
	l.closed.Store(true)
	l.breaker.closed = true
	return l
}

func newTestAsk() *ask { return &ask{done: make(chan struct{}, 1)} }

func groupsOf(n, takes int) []*shard.Group {
	groups := make([]*shard.Group, n)
	for i := range groups {
		groups[i] = &shard.Group{Takes: make([]shard.Take, takes)}
	}
	return groups
}

// An answer with more or fewer takes than were asked for answers nothing, and leaves
// nobody waiting.
func TestAnswerOfAnotherSize(t *testing.T) {
	for _, takes := range []int{0, 1, 3} {
		l, a, groups := closedLane(), newTestAsk(), groupsOf(1, 2)
		first, err := l.enqueue(a, groups)
		if err != nil {
			t.Fatal(err)
		}
		answer := &shard.Group{Allowed: true, Takes: make([]shard.Take, takes)}
		if err := l.deliver(appendAnswer([]byte{wireVersion}, first, answer)); err != nil {
			t.Error(err)
		}
		if g := groups[0]; g.Allowed || g.Takes[0].Source != shard.Unanswered || a.left.Load() != 0 {
			t.Errorf("%d takes for 2: %+v, %d wait", takes, g, a.left.Load())
		}
	}
}

// The next link owes nothing and is owed nothing.
func TestBrokenLaneBeginsAnew(t *testing.T) {
	l, a := closedLane(), newTestAsk()
	if _, err := l.enqueue(a, groupsOf(3, fullFrame)); err != nil {
		t.Fatal(err)
	}
	l.conn, _ = net.Pipe()
	if frame, _ := l.takeFrame(maxFrame); frame == nil || l.unacked != 1 {
		t.Fatalf("%d frames under way", l.unacked)
	}
	l.pace.answered(fullFrame, time.Now().Add(time.Second))
	if l.backlog != 3*fullFrame || l.pace.most() != minBacklog {
		t.Fatalf("%d takes behind, at most %d", l.backlog, l.pace.most())
	}
	l.broken()
	if l.backlog != 0 || l.unacked != 0 || l.queued != 0 || len(l.pending) != 0 || l.pace.most() != firstBacklog || a.left.Load() != 0 {
		t.Errorf("%+v, %d wait", l, a.left.Load())
	}
}

// Answers to frames that were never sent do not let more than one be under way.
func TestUnaskedAnswersAreNoLicence(t *testing.T) {
	l := closedLane()
	l.conn, _ = net.Pipe()
	for range 3 {
		if err := l.deliver([]byte{wireVersion}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		l.queue = append(l.queue, newFrame(nil))
	}
	if frame, _ := l.takeFrame(maxFrame); frame == nil {
		t.Error("no frame is sent")
	}
	if frame, _ := l.takeFrame(maxFrame); frame != nil {
		t.Error("two frames are under way")
	}
}

// A frame keeps to its bound, and all that waits fits its bound.
func TestQueueIsBounded(t *testing.T) {
	l := closedLane()
	if _, err := l.enqueue(newTestAsk(), groupsOf(30, maxTakes)); !errors.Is(err, errOverflow) || l.queued != 0 {
		t.Errorf("%v, %d bytes wait", err, l.queued)
	}
	if _, err := l.enqueue(newTestAsk(), groupsOf(10, maxTakes)); err != nil {
		t.Error(err)
	}
	takes := make([]shard.Take, maxTakes)
	for range 100 {
		_ = l.giveBack(takes) // sooner or later there is no room
	}
	if err := l.giveBack(takes); !errors.Is(err, errOverflow) {
		t.Errorf("after 100 returns of %d takes: %v", maxTakes, err)
	}
	sum := 0
	for _, frame := range l.queue {
		sum += len(frame)
		if len(frame) > lengthSize+maxFrame {
			t.Errorf("a frame of %d bytes, the bound is %d", len(frame)-lengthSize, maxFrame)
		}
	}
	if sum != l.queued || sum > maxQueue {
		t.Errorf("%d bytes wait, %d were counted, the bound is %d", sum, l.queued, maxQueue)
	}
	l.breaker.closed = false
	if err := l.giveBack(takes[:1]); !errors.Is(err, errOpen) {
		t.Errorf("broken: %v", err)
	}
}
