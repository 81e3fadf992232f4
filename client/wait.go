package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Wait returns when the request may go on, in the manner of golang.org/x/time/rate: it
// asks, waits exactly as long as the answer says, and asks again, since others may have
// been faster. Where a rule books a turn (max_delay, leaky_bucket) it waits for that.
//
// If the deadline of ctx is too early, or no wait helps, it says so at once by a
// *DeniedError, and nothing is counted. Without a deadline it waits for as long as it
// takes.
//
// While no node decides, or nodes have too much to do, the end of that is not known. Wait
// then asks again after pauses that grow up to a second, until a node decides or ctx ends.
// In the latter case the error is both that of ctx, context.DeadlineExceeded or
// context.Canceled, and the reason: a *DeniedError whose answer Undecided reports, or a
// status such as RESOURCE_EXHAUSTED. A check that is allowed undecided goes on, so that
// only a Checker that fails closed waits for nodes.
//
// Canceling ctx while waiting for a turn does not give the turn back: others stand behind
// it already.
func Wait(ctx context.Context, c Checker, req *weirv1.RateLimitRequest) (*weirv1.RateLimitResponse, error) {
	for failures := 0; ; {
		answer, err := c.Check(ctx, req)
		if err == nil {
			err = Denied(answer)
		}
		if err == nil {
			return answer, AwaitTurn(ctx, c, req, answer)
		}
		wait, ok := RetryAfter(err)
		if !ok {
			return nil, err
		}
		if wait == 0 {
			if ended := sleep(ctx, unknownPause(ctx, failures)); ended != nil {
				return nil, fmt.Errorf("%w: %w", ended, err)
			}
			failures++
			continue
		}
		if tooEarly(ctx, wait) {
			return nil, late(err)
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, err
		}
	}
}

// Bounds of the pauses of Wait while nothing says how long to wait.
const (
	longestUnknown  = time.Second
	shortestUnknown = 5 * time.Millisecond
)

// unknownPause returns the pause before asking again where nothing says how long to wait. It
// ends before the deadline of ctx, unless that is near, so that an answer is not missed.
func unknownPause(ctx context.Context, failures int) time.Duration {
	pause := max(shortestUnknown, Backoff{Most: longestUnknown}.pause(failures))
	if deadline, ok := ctx.Deadline(); ok {
		pause = min(pause, max(shortestUnknown, time.Until(deadline)/2))
	}
	return pause
}

// late marks a denial as one that the deadline makes.
func late(err error) error {
	var denied *DeniedError
	if errors.As(err, &denied) {
		denied.Late = true
	}
	return err
}

// AwaitTurn waits for the turn that a rule has booked for an allowed request, if it has:
// for as long as the answer's delay. If the deadline of ctx is earlier it does not wait,
// gives the turn back, and returns a *DeniedError.
func AwaitTurn(ctx context.Context, c Checker, req *weirv1.RateLimitRequest, answer *weirv1.RateLimitResponse) error {
	delay := answer.GetDelay().AsDuration()
	switch {
	case delay <= 0 || req.GetPeek():
		return nil
	case tooEarly(ctx, delay):
		giveBack(ctx, c, req)
		return &DeniedError{Answer: answer, Late: true}
	}
	return sleep(ctx, delay)
}

// giveBack returns the tokens of a request that was counted just now. If it fails too few are allowed.
func giveBack(ctx context.Context, c Checker, req *weirv1.RateLimitRequest) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
	defer cancel()
	back := proto.CloneOf(req)
	back.TokensRequested, back.Lease = -max(1, req.GetTokensRequested()), 0
	_, _ = c.Check(ctx, back)
}

// tooEarly reports whether the deadline of ctx comes before a pause is over.
func tooEarly(ctx context.Context, pause time.Duration) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < pause
}

// sleep waits, for as long as ctx lets it.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(max(1, pause))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
