package client

import (
	"context"
	"errors"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// maxTries is how many times a call is sent, at most.
const maxTries = 2

// grace is how long a check whose context has no deadline waits at most, beyond its time, for
// the answer of a node that is busy.
const grace = time.Second

// ask sends requests to a node and returns its answers. If no node answers in time it returns neither
// answers nor an error, or errFull if the nodes do answer other calls.
//
// A call that was sent, but not answered when its connection broke or when its node has been silent for
// half of its time, is sent once more, to another node. It may then be counted twice: too few requests may
// be allowed, never too many. Calls that give tokens back are not sent twice, as that would allow too many.
//
// A call that a node refuses because this client lacks the role for it was not counted, and is sent to others until one accepts it. If all
// refuse, the error is an *AccessError.
func (c *Client) ask(ctx context.Context, reqs []*weirv1.RateLimitRequest, batch bool) ([]*weirv1.RateLimitResponse, error) {
	begun := time.Now()
	due, ok := ctx.Deadline()
	if !ok {
		due = begun.Add(c.timeout)
	}
	var avoid *member
	var refused *AccessError
	var refusing []*member // have refused this call
	for tries := 0; tries < maxTries; tries++ {
		via, waited := c.await(ctx, due, avoid, refusing)
		if via == nil && tries == 0 && c.tooLate(ctx) {
			c.stats.failed(errFull)
			return nil, errFull
		}
		if via == nil {
			break
		}
		if tries > 0 || waited {
			begun = time.Now()
		}
		k, err := c.calls.take(c.options.sampledSpanOf(ctx), reqs, batch, begun, due)
		if err != nil {
			return nil, err
		}
		if tries > 0 {
			c.stats.retried.Add(1)
		}
		once := k.givesBack
		responses, sent, err := c.try(ctx, via, k, tries+1 == maxTries || once)
		if isRefusal(err) {
			refused, refusing = &AccessError{Address: via.member.address, Reason: err}, append(refusing, via.member)
			tries--
			continue
		}
		if err == nil || !errors.Is(err, errBroken) && !errors.Is(err, errLate) {
			return responses, err
		}
		if sent && once || !time.Now().Before(due) {
			break
		}
		avoid = via.member
	}
	return nil, c.gaveUp(ctx, refused)
}

// tooLate reports whether a check has begun after its deadline although a node could be asked: its
// caller was late, which is no node's silence.
func (c *Client) tooLate(ctx context.Context) bool {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	now := c.live.now()
	via := c.pick(now, nil)
	return via != nil && via.usable(now)
}

// try asks one node. It fails with errBroken or errLate if another may be asked. Unless
// this is the last try, half of the time is left for that one, if there is one and via is silent.
func (c *Client) try(ctx context.Context, via *conn, k *call, last bool) (responses []*weirv1.RateLimitResponse, sent bool, err error) {
	if err := via.enqueue(k); err != nil {
		k.free()
		if errors.Is(err, errFull) && via.silence(c.live.now()) >= stalledAfter {
			err = errLate // it is not busy, it does not answer
		}
		c.stats.failed(err)
		return nil, false, err
	}
	until := k.due
	if !last {
		until = k.begun.Add(k.due.Sub(k.begun) / 2)
	}
	done := k.wait(ctx, until)
	if !done && !last && ctx.Err() == nil && !(c.silent(via, k, until) && c.hasOther(via.member)) {
		until, done = k.due, k.wait(ctx, k.due)
	}
	if !done {
		if err := c.leave(ctx, via, k, until); err != nil {
			return nil, true, err
		}
	}
	responses, sent, err = k.responses, k.sent, k.err
	k.free()
	c.stats.failed(err)
	return responses, sent, err
}

// leave gives a call up that was not answered by then. The error is errLate if its node is
// silent or the caller has canceled, errFull if there is too much to do, and nil if it is answered after
// all. A call that was sent to a busy node is counted, so its answer is worth more time, unless
// ctx has a deadline.
func (c *Client) leave(ctx context.Context, via *conn, k *call, until time.Time) error {
	err := errLate
	if !errors.Is(ctx.Err(), context.Canceled) && !c.silent(via, k, until) {
		err = errFull
		if via.hasSent(k) && ctx.Err() == nil && k.wait(ctx, k.due.Add(grace)) {
			return nil
		}
	}
	if !k.abandon() {
		return nil
	}
	via.abandoned.Store(true)
	c.stats.failed(err)
	return err
}

// silent reports whether a node has answered nothing, neither this call nor others, for most of
// the time that a call has waited, until a moment that is over. If it is false, the
// node has too much to do, or this process, whose goroutines then run late: what that takes
// is not the node's silence.
func (c *Client) silent(via *conn, k *call, until time.Time) bool {
	late := max(0, time.Since(until))
	return !via.up.Load() || via.silence(c.live.now())-late >= until.Sub(k.begun)/4*3
}

// gaveUp is the error for a caller that gets no answer, or nil if it gets the client's
// own. A caller that has canceled wants none. Refused is why nodes have refused its call, nil if none has.
func (c *Client) gaveUp(ctx context.Context, refused *AccessError) error {
	if refused == nil {
		refused = c.refusal()
	}
	switch {
	case c.stopped.Err() != nil:
		return ErrClosed
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled
	case refused != nil:
		return refused
	}
	c.stats.undecided.Add(1)
	return nil
}

// post sends a request without waiting for the answer, if it can be sent at once.
func (c *Client) post(req *weirv1.RateLimitRequest) {
	via := c.pick(c.live.now(), nil)
	if via == nil {
		return
	}
	now := time.Now()
	k, err := c.calls.take("", []*weirv1.RateLimitRequest{req}, false, now, now.Add(c.timeout))
	if err != nil {
		return
	}
	k.state.Store(abandoned)
	if via.enqueue(k) != nil {
		k.free()
	}
}
