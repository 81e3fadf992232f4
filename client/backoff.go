package client

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// What a Backoff has that says nothing else.
const (
	firstRetry   = 100 * time.Millisecond
	longestRetry = 10 * time.Second
	defaultTries = 5
)

// Backoff says how Retry pauses: before the n-th repetition for a random time below First * 2^(n-1), but
// not above Most ("full jitter": Brooker, Exponential Backoff And Jitter, 2015), and in addition, before
// that, for as long as the error says. So no caller comes back earlier than the error says, and not all at
// once. The zero value stands for 100 ms, 10 s and 5 tries.
type Backoff struct {
	First time.Duration // the longest first pause; 0 or less means 100 ms
	Most  time.Duration // the longest pause; 0 or less means 10 s
	Tries int           // how often to try, at most; 0 or less means 5
}

// Retry calls f until it succeeds, fails with what lasts (see RetryAfter), or
// has used up its tries. If the deadline of ctx is before the next try it gives up at
// once. It returns what f returned last; if ctx ended while it paused, also why.
func Retry(ctx context.Context, b Backoff, f func(ctx context.Context) error) error {
	tries := b.Tries
	if tries <= 0 {
		tries = defaultTries
	}
	for repetition := 0; ; repetition++ {
		err := f(ctx)
		if err == nil {
			return nil
		}
		wait, ok := RetryAfter(err)
		if !ok || repetition+1 >= tries {
			return err
		}
		pause := addWait(wait, b.pause(repetition))
		if tooEarly(ctx, pause) {
			return err
		}
		if ended := sleep(ctx, pause); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// pause returns a random pause before a repetition, counted from 0.
func (b Backoff) pause(repetition int) time.Duration {
	bound, most := b.First, b.Most
	if bound <= 0 {
		bound = firstRetry
	}
	if most <= 0 {
		most = longestRetry
	}
	for ; repetition > 0 && bound < most; repetition-- {
		bound = addWait(bound, bound)
	}
	return rand.N(min(bound, most))
}

// addWait is a + b, or the longest wait there is.
func addWait(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// RetryAfter returns how long to wait before what has failed with err can succeed, 0 if that is not known,
// and whether it can: it knows a *DeniedError, or any error with a method RetryAfter as that has, and the
// gRPC status codes UNAVAILABLE and RESOURCE_EXHAUSTED with google.rpc.RetryInfo. A RESOURCE_EXHAUSTED that
// names a quota and no time stays.
func RetryAfter(err error) (wait time.Duration, ok bool) {
	var says interface {
		RetryAfter() (wait time.Duration, ok bool)
	}
	if errors.As(err, &says) {
		return says.RetryAfter()
	}
	s, isStatus := status.FromError(err)
	if !isStatus || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0, false
	}
	ok = true
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			return max(0, d.GetRetryDelay().AsDuration()), true
		case *errdetails.QuotaFailure:
			ok = false
		}
	}
	return 0, ok
}
