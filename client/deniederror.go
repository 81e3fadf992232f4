package client

import (
	"context"
	"fmt"
	"time"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// DeniedError says that a request may not go on, now or before its deadline.
type DeniedError struct {
	// Answer is what was answered last.
	Answer *weirv1.RateLimitResponse
	// Late says that the request could go on, but only after its context's deadline.
	// The error is a context.DeadlineExceeded then.
	Late bool
}

// Denied returns an answer that denies as a *DeniedError, and otherwise nil.
func Denied(answer *weirv1.RateLimitResponse) error {
	if answer.GetAllowed() {
		return nil
	}
	return &DeniedError{Answer: answer}
}

// RetryAfter returns how long it is until the request could go on, and whether it could: a request that
// costs more than its limit cannot. It is 0 if no node has decided.
func (e *DeniedError) RetryAfter() (wait time.Duration, ok bool) {
	switch {
	case e.Answer.GetAllowed(): // and its turn comes too late
		return e.Answer.GetDelay().AsDuration(), true
	case e.Answer.GetRetryAfter() != nil:
		return e.Answer.GetRetryAfter().AsDuration(), true
	}
	return 0, e.Answer.GetDenialReason() == weirv1.DenialReason_DENIAL_REASON_UNDECIDED
}

// Error says who has denied, and until when.
func (e *DeniedError) Error() string {
	by := "denied"
	if id := e.Answer.GetRuleId(); id != "" {
		by = fmt.Sprintf("denied by rule %q", id)
	}
	wait, ok := e.RetryAfter()
	switch {
	case e.Late:
		return fmt.Sprintf("%s: the turn comes in %v, after the deadline", by, wait)
	case ok && wait > 0:
		return fmt.Sprintf("%s: retry after %v", by, wait)
	case ok:
		return by + ": no node that could decide has answered"
	case e.Answer.GetDenialReason() == weirv1.DenialReason_DENIAL_REASON_COST_ABOVE_LIMIT:
		return by + ": it costs more than the limit"
	}
	return by + ": no wait helps"
}

// Unwrap returns context.DeadlineExceeded if e is late.
func (e *DeniedError) Unwrap() error {
	if e.Late {
		return context.DeadlineExceeded
	}
	return nil
}
