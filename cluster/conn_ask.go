package cluster

import (
	"errors"
	"math"
	"time"

	"github.com/weirlimit/weir/shard"
)

// This file is the part of a conn that checks use: it queues what is asked, and what is given back.

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

// rests reports whether nothing is queued and the peer has answered every frame, or cannot, as
// the connection is broken.
func (c *conn) rests() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.breaker.healthy || len(c.queue) == 0 && c.unacked == 0
}

// keep tells the peer that takes stay, at once, or with what is asked next. If there is no room for that, the peer finds
// out by itself when they cannot be undone any more.
func (c *conn) keep(takes []shard.Take, later bool) {
	c.mu.Lock()
	g := &shard.Group{Takes: takes}
	fits := c.breaker.healthy && c.queuedBytes+stampSize+requestSize(g) <= maxQueue
	if fits {
		c.appendLocked(opKeep, 0, g, 0, nil)
	}
	c.mu.Unlock()
	if fits && !later {
		c.pushAll()
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
