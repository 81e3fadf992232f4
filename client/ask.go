package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// maxTries is how many times a call is sent, at most.
const maxTries = 2

// ask has requests answered by a node. If none does in time it returns neither answers
// nor an error.
//
// A call that was sent, but not answered when its connection broke or when half of its
// time was over, is sent once more, to another node. It may be counted twice then: too
// few may be let through, never too many. What gives tokens back is not sent twice, as
// that would let through too many.
func (c *Client) ask(ctx context.Context, reqs []*weirv1.RateLimitRequest, batch bool) ([]*weirv1.RateLimitResponse, error) {
	due, ok := ctx.Deadline()
	if !ok {
		due = time.Now().Add(c.timeout)
	}
	var avoid *member
	for tries := range maxTries {
		l := c.await(ctx, due, avoid)
		if l == nil {
			break
		}
		k, err := c.calls.take(reqs, batch, due)
		if err != nil {
			return nil, err
		}
		if tries > 0 {
			c.stats.retried.Add(1)
		}
		once := k.givesBack
		responses, sent, err := c.try(ctx, l, k, tries+1 == maxTries || once)
		if err == nil || !errors.Is(err, errBroken) && !errors.Is(err, errLate) {
			return responses, err
		}
		if sent && once || !time.Now().Before(due) {
			break
		}
		avoid = l.member
	}
	return nil, c.gaveUp(ctx)
}

// try asks one node. It fails with errBroken or errLate if another may be asked. Unless
// this is the last try, half of the time is left for that one, if there is one.
func (c *Client) try(ctx context.Context, l *lane, k *call, last bool) (responses []*weirv1.RateLimitResponse, sent bool, err error) {
	due, until := k.due, k.due
	if !last {
		until = due.Add(-time.Until(due) / 2)
	}
	if err := l.enqueue(k); err != nil {
		k.free()
		if errors.Is(err, errFull) && l.silence(c.since()) >= stalledAfter {
			err = errLate // it is not busy, it does not answer
		}
		c.stats.failed(err)
		return nil, false, err
	}
	done := k.wait(ctx, until)
	if !done && !last && ctx.Err() == nil && !c.hasOther(l.member) {
		done = k.wait(ctx, due)
	}
	if !done && k.abandon() {
		return nil, true, errLate
	}
	responses, sent, err = k.responses, k.sent, k.err
	k.free()
	c.stats.failed(err)
	return responses, sent, err
}

// gaveUp is the error for a caller that gets no answer, or nil if it gets the client's
// own. A caller that has canceled wants none.
func (c *Client) gaveUp(ctx context.Context) error {
	switch {
	case c.stopped.Err() != nil:
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	}
	c.stats.undecided.Add(1)
	return nil
}

// await returns the lane to be asked. While there is none it waits, if there was one
// until shortly before. It is nil if that does not help.
func (c *Client) await(ctx context.Context, due time.Time, avoid *member) *lane {
	if ctx.Err() != nil {
		return nil
	}
	if l := c.pick(c.since(), avoid); l != nil {
		return l
	}
	timer := time.NewTimer(max(1, time.Until(due)))
	defer timer.Stop()
	for {
		c.mu.Lock()
		seen := c.seen
		c.mu.Unlock()
		now := c.since()
		if l := c.pick(now, avoid); l != nil {
			return l
		}
		if down := c.downSince.Load(); down == 0 || time.Duration(now-down) >= outage {
			return nil
		}
		select {
		case <-seen:
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return nil
		case <-c.stopped.Done():
			return nil
		}
	}
}

// pick returns the lane to be asked: of two at random that answer the one with less to
// do (Azar et al. 1994); else the one that has been silent for the shortest time, as it
// may only have paused. Lanes of avoid come last. It is nil if no lane is up, or none
// has answered for long.
func (c *Client) pick(now int64, avoid *member) *lane {
	lanes := *c.lanes.Load()
	var usable, best *lane
	shortest := outage
	for i, start := 0, rand.IntN(len(lanes)); i < len(lanes); i++ {
		l := lanes[(start+i)%len(lanes)]
		silence := l.silence(now)
		switch {
		case !l.up.Load():
		case silence < stalledAfter && l.member != avoid:
			if usable != nil {
				return lessBusy(usable, l)
			}
			usable = l
		case silence < shortest:
			best, shortest = l, silence
		}
	}
	if usable != nil {
		return usable
	}
	return best
}

func lessBusy(a, b *lane) *lane {
	if b.load.Load() < a.load.Load() {
		return b
	}
	return a
}

// hasOther reports whether a node but m can be asked.
func (c *Client) hasOther(m *member) bool {
	l := c.pick(c.since(), m)
	return l != nil && l.member != m
}

// post sends a request whose answer nobody waits for, if it can be sent at once.
func (c *Client) post(req *weirv1.RateLimitRequest) {
	l := c.pick(c.since(), nil)
	if l == nil {
		return
	}
	k, err := c.calls.take([]*weirv1.RateLimitRequest{req}, false, time.Now().Add(c.timeout))
	if err != nil {
		return
	}
	k.state.Store(abandoned)
	if l.enqueue(k) != nil {
		k.free()
	}
}
