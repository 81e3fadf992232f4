package overload

import (
	"sync"
	"sync/atomic"
)

// callers counts how many calls wait at once at least, while the node is late: on each connection the most that were under way
// at once. A caller that waits for each answer before it asks again is one, however many calls it makes meanwhile. One that gives up a call and asks
// again is one more each time.
//
// It stops at a little more than minWaiting, which bounds its memory and its time.
type callers struct {
	watching atomic.Bool
	begun    atomic.Int64 // calls that begin has recorded and end has not

	mu    sync.Mutex
	conns map[any]*connCalls // guarded by mu; <= minWaiting+1
	sum   int                // of what the connections are worth; guarded by mu
}

// connCalls are the calls on one connection since it was watched.
type connCalls struct {
	underWay, most int
	work           int // that the largest of them is worth, in calls
}

func (c *connCalls) worth() int { return c.most * c.work }

// watch begins from nothing, or ends.
func (c *callers) watch(on bool) {
	if on == c.watching.Load() {
		return
	}
	c.mu.Lock()
	c.conns, c.sum = nil, 0
	c.mu.Unlock()
	c.watching.Store(on)
}

// atOnce returns how many calls wait at once, up to a little more than minWaiting.
func (c *callers) atOnce() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// begin records a call on a connection. It returns nil if there are many already.
func (c *callers) begin(conn any) *connCalls {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sum > minWaiting {
		return nil
	}
	on := c.conns[conn]
	if on == nil {
		if c.conns == nil {
			c.conns = make(map[any]*connCalls)
		}
		on = &connCalls{work: 1}
		c.conns[conn] = on
	}
	c.begun.Add(1)
	c.change(on, on.underWay+1, 1)
	return on
}

// grow records how many calls the work of a call is worth, which begin has recorded.
func (c *callers) grow(on *connCalls, work int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(on, on.underWay, work)
}

// gone records that the caller of a call has gone before it was answered. The call stays under way: it was in vain, and others that are in vain too
// were under way at once with it, although the node may read each with the news that its caller has gone.
func (c *callers) gone() { c.begun.Add(-1) }

// end records that a call that begin has recorded was answered.
func (c *callers) end(on *connCalls) {
	c.begun.Add(-1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.change(on, on.underWay-1, 1)
}

// change is called with mu held. The calls may be of the time before watch.
func (c *callers) change(on *connCalls, underWay, work int) {
	before := on.worth()
	on.underWay, on.most, on.work = underWay, max(on.most, underWay), max(on.work, work)
	c.sum += on.worth() - before
}
