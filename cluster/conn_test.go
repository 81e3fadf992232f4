package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// healthyConn is a conn that takes requests in, and sends none.
func healthyConn() *conn {
	c := newConn(nil, DefaultAttemptTimeout)
	c.healthy.Store(true)
	c.breaker.healthy = true
	return c
}

func newTestCall() *call { return &call{done: make(chan struct{}, 1)} }

func groupsOf(n, takes int) []*shard.Group {
	groups := make([]*shard.Group, n)
	for i := range groups {
		groups[i] = &shard.Group{Takes: make([]shard.Take, takes)}
	}
	return groups
}

// An answer with more or fewer takes than were asked for answers nothing, and leaves no caller waiting.
func TestAnswerOfAnotherSize(t *testing.T) {
	for _, takes := range []int{0, 1, 3} {
		c, a, groups := healthyConn(), newTestCall(), groupsOf(1, 2)
		first, err := c.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := &shard.Group{Allowed: true, Takes: make([]shard.Take, takes)}
		if err := c.deliver(appendAnswer([]byte{connVersion}, first, answer, false)); err != nil {
			t.Error(err)
		}
		if g := groups[0]; g.Allowed || g.Takes[0].Source != shard.Undecided || a.left.Load() != 0 || c.backlog < 0 {
			t.Errorf("%d takes for 2: %+v, %d wait, backlog %d", takes, g, a.left.Load(), c.backlog)
		}
	}
}

// An answer that is cut off answers nothing that it does not contain.
func TestAnswerThatIsCutOff(t *testing.T) {
	c, a, groups := healthyConn(), newTestCall(), groupsOf(1, 1)
	first, err := c.enqueue(a, groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := appendAnswer([]byte{connVersion}, first, &shard.Group{Allowed: true, Takes: make([]shard.Take, 1)}, false)
	if err := c.deliver(answer[:len(answer)-1]); err == nil {
		t.Error("no error")
	}
	if g := groups[0]; g.Takes[0].Source != shard.Undecided || a.left.Load() != 0 {
		t.Errorf("%+v, %d wait", g, a.left.Load())
	}
}

// sendingConn is a healthy conn with a connection, and the connection's other end.
func sendingConn() (*conn, net.Conn) {
	here, there := net.Pipe()
	c := healthyConn()
	c.frames = prometheus.NewCounter(prometheus.CounterOpts{Name: "frames"})
	c.conn = here
	return c, there
}

// What is asked while a frame is under way goes out with the answer to that.
func TestAnswerSendsWhatHasWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, there := sendingConn()
		frames := newFrameReader(there, maxFrame)
		request := func() uint32 {
			frame, err := frames.next()
			if err != nil {
				t.Fatal(err)
			}
			r := openFrame(frame)
			r.preamble()
			var q request
			r.request(&q, nil)
			return q.id
		}
		ask := func() {
			if _, err := c.enqueue(newTestCall(), groupsOf(1, 1), nil); err != nil {
				t.Error(err)
			}
		}
		go ask()
		first := request()
		synctest.Wait()
		ask()
		go func() { _ = c.deliver(appendAnswer([]byte{connVersion}, first, groupsOf(1, 1)[0], false)) }()
		if second := request(); second == first {
			t.Errorf("request %d came twice", second)
		}
	})
}

// A check does not wait until the peer has read a large frame.
func TestLargeFramesAreLeftToSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, there := sendingConn()
		go c.send(t.Context())
		takes := slices.Repeat([]shard.Take{take(ring.Key{}, 10, 1)}, maxTakes)
		if err := c.giveBack(takes, 0); err != nil { // no peer reads
			t.Fatal(err)
		}
		frames := newFrameReader(there, maxFrame)
		frame, err := frames.next()
		if err != nil || len(frame) <= maxDirect {
			t.Errorf("%d bytes, %v", len(frame), err)
		}
	})
}

// A frame under way shares no memory with the one that is filled meanwhile.
func TestFramesShareNoMemory(t *testing.T) {
	c := healthyConn()
	c.conn, _ = net.Pipe()
	c.reuse(make([]byte, keepBytes+1))
	if c.spare != nil {
		t.Errorf("%d bytes are kept, the bound is %d", cap(c.spare), keepBytes)
	}
	c.reuse(make([]byte, keepBytes))
	c.appendLocked(opPing, 1, &shard.Group{}, 0, nil)
	frame, _ := c.takeFrame(maxFrame)
	was := bytes.Clone(frame)
	c.appendLocked(opPing, 2, &shard.Group{}, 0, nil)
	if !bytes.Equal(frame, was) {
		t.Errorf("%x, it was %x", frame, was)
	}
}

// A caller that has its answers may ask for as much again at once, while the rest of the frame is still read.
func TestWhatIsAnsweredWaitsNoMore(t *testing.T) {
	const half = firstBacklog / 2 / maxTakes
	c, groups := healthyConn(), groupsOf(2*half+1, maxTakes)
	if _, err := c.enqueue(newTestCall(), groups[:half], nil); err != nil {
		t.Fatal(err)
	}
	answer, answers := &shard.Group{Takes: make([]shard.Take, maxTakes)}, []byte{connVersion}
	setSource(answer, shard.Owner)
	for id := range half {
		answers = appendAnswer(answers, uint32(id+1), answer, false)
	}
	c.mu.Lock()
	for frame := openFrame(answers); frame.more(); {
		c.deliverLocked(&frame, time.Now())
	}
	c.mu.Unlock()
	if _, err := c.enqueue(newTestCall(), groups[half:], nil); err != nil || c.backlog != (half+1)*maxTakes {
		t.Errorf("%v, %d takes wait", err, c.backlog)
	}
}

// The next connection owes nothing and is owed nothing.
func TestBrokenConnStartsAgain(t *testing.T) {
	c, a := healthyConn(), newTestCall()
	if _, err := c.enqueue(a, groupsOf(3, fullFrame), nil); err != nil {
		t.Fatal(err)
	}
	c.conn, _ = net.Pipe()
	if frame, _ := c.takeFrame(maxFrame); frame == nil || c.unacked != 1 {
		t.Fatalf("%d frames under way", c.unacked)
	}
	c.pacer.answered(fullFrame, time.Now().Add(time.Second))
	if c.backlog != 3*fullFrame || c.pacer.most() != minBacklog {
		t.Fatalf("%d takes behind, at most %d", c.backlog, c.pacer.most())
	}
	c.broken()
	if c.backlog != 0 || c.unacked != 0 || c.queuedBytes != 0 || c.waiting != 0 || c.pacer.most() != firstBacklog || a.left.Load() != 0 {
		t.Errorf("%+v, %d wait", c, a.left.Load())
	}
}

// Answers to frames that were never sent do not let more than one be under way.
func TestUnrequestedAnswersFreeNoSlot(t *testing.T) {
	c := healthyConn()
	c.conn, _ = net.Pipe()
	for range 3 {
		if err := c.deliver([]byte{connVersion}); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		c.queue = append(c.queue, newRequests(nil))
	}
	if frame, _ := c.takeFrame(maxFrame); frame == nil {
		t.Error("no frame is sent")
	}
	if frame, _ := c.takeFrame(maxFrame); frame != nil {
		t.Error("two frames are under way")
	}
}

// No request is enqueued that would never be given up.
func TestRequestsAreBounded(t *testing.T) {
	c := healthyConn()
	for _, tc := range []struct {
		requests int
		want     error
	}{{maxPending + 1, errOverflow}, {maxPending, nil}, {1, errOverflow}} {
		if _, err := c.enqueue(newTestCall(), groupsOf(tc.requests, 0), nil); !errors.Is(err, tc.want) {
			t.Errorf("%d requests: %v, want %v", tc.requests, err, tc.want)
		}
	}
	c.breaker.healthy = false // since enqueue has looked
	if _, err := c.enqueue(newTestCall(), groupsOf(1, 0), nil); !errors.Is(err, errOpen) || c.waiting != maxPending {
		t.Errorf("broken: %v, %d wait", err, c.waiting)
	}
}

// A frame keeps to its bound, and all that waits fits its bound.
func TestQueueIsBounded(t *testing.T) {
	c := healthyConn()
	if _, err := c.enqueue(newTestCall(), groupsOf(30, maxTakes), nil); !errors.Is(err, errOverflow) || c.queuedBytes != 0 {
		t.Errorf("%v, %d bytes wait", err, c.queuedBytes)
	}
	if _, err := c.enqueue(newTestCall(), groupsOf(10, maxTakes), nil); err != nil {
		t.Error(err)
	}
	takes := make([]shard.Take, maxTakes)
	for range 100 {
		_ = c.giveBack(takes, 0) // sooner or later there is no room
	}
	if err := c.giveBack(takes, 0); !errors.Is(err, errOverflow) {
		t.Errorf("after 100 returns of %d takes: %v", maxTakes, err)
	}
	sum := 0
	for _, frame := range c.queue {
		sum += len(frame)
		if len(frame) > lengthSize+maxFrame {
			t.Errorf("a frame of %d bytes, the bound is %d", len(frame)-lengthSize, maxFrame)
		}
	}
	if sum != c.queuedBytes || sum > maxQueue {
		t.Errorf("%d bytes wait, %d were counted, the bound is %d", sum, c.queuedBytes, maxQueue)
	}
	c.breaker.healthy = false
	if err := c.giveBack(takes[:1], 0); !errors.Is(err, errOpen) {
		t.Errorf("broken: %v", err)
	}
}

// Of requests that were asked together, some may be answered when the others are given
// up, or when the connection breaks.
func TestSomeAreAnswered(t *testing.T) {
	for name, end := range map[string]func(c *conn, a *call, first uint32){
		"given up": func(c *conn, a *call, first uint32) {
			if n := c.giveUp(a, first, time.Now()); n != 2 {
				t.Errorf("gave up %d requests of 2", n)
			}
		},
		"broken": func(c *conn, _ *call, _ uint32) { c.broken() },
	} {
		c, a, groups := healthyConn(), newTestCall(), groupsOf(3, 1)
		first, err := c.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer := func(id uint32) error {
			return c.deliver(appendAnswer([]byte{connVersion}, id, &shard.Group{Allowed: true, Takes: make([]shard.Take, 1)}, false))
		}
		if err := answer(first); err != nil || !groups[0].Allowed || c.waiting != 2 {
			t.Errorf("%s: %v, %+v, %d wait", name, err, groups[0], c.waiting)
		}
		end(c, a, first)
		if err := answer(first + 1); err != nil || groups[1].Allowed || c.waiting != 0 || a.left.Load() != 0 {
			t.Errorf("%s: %v, %+v, %d wait, of the asker's %d", name, err, groups[1], c.waiting, a.left.Load())
		}
	}
}

// A peer that leaves out an answer talks nonsense; a pong may come at any time.
func TestAnswersAreInOrder(t *testing.T) {
	c, groups := healthyConn(), groupsOf(4, 1)
	first, err := c.enqueue(newTestCall(), groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	frame := []byte{connVersion}
	for _, id := range []uint32{first, pingID, first + 1, first + 3} {
		frame = appendAnswer(frame, id, &shard.Group{Allowed: true, Takes: make([]shard.Take, 1)}, false)
	}
	err = c.deliver(frame)
	if want := fmt.Sprintf("answer %d comes before answer %d", first+3, first+2); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if !groups[1].Allowed || groups[2].Allowed || groups[3].Allowed {
		t.Errorf("%+v", groups)
	}
}
