package client_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
	"pgregory.net/rapid"

	"github.com/weirlimit/weir/client"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// statusError is an error with details.
func statusError(code codes.Code, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, "too much").WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return s.Err()
}

func retryInfo(wait time.Duration) protoadapt.MessageV1 {
	return &errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}
}

func denied(wait time.Duration) error {
	return &client.DeniedError{Answer: &weirv1.RateLimitResponse{RetryAfter: durationpb.New(wait)}}
}

func TestRetryAfter(t *testing.T) {
	reason := func(r weirv1.DenialReason) error {
		return client.Denied(&weirv1.RateLimitResponse{DenialReason: r.Enum()})
	}
	quota := &errdetails.QuotaFailure{}
	for _, tc := range []struct {
		err  error
		want time.Duration
		ok   bool
	}{
		{errors.New("no idea"), 0, false},
		{context.Canceled, 0, false},
		{denied(3 * time.Second), 3 * time.Second, true},
		{fmt.Errorf("wrapped: %w", denied(1)), 1, true},
		{reason(weirv1.DenialReason_DENIAL_REASON_UNDECIDED), 0, true},
		{reason(weirv1.DenialReason_DENIAL_REASON_BLOCKED), 0, false},
		{reason(weirv1.DenialReason_DENIAL_REASON_COST_ABOVE_LIMIT), 0, false},
		{statusError(codes.ResourceExhausted), 0, true},
		{statusError(codes.Unavailable), 0, true},
		{statusError(codes.ResourceExhausted, quota, retryInfo(time.Second)), time.Second, true},
		{statusError(codes.ResourceExhausted, retryInfo(-time.Second)), 0, true},
		{statusError(codes.ResourceExhausted, quota), 0, false},
		{statusError(codes.InvalidArgument, retryInfo(time.Second)), 0, false},
		{client.Denied(&weirv1.RateLimitResponse{Allowed: true}), 0, false},
	} {
		if got, ok := client.RetryAfter(tc.err); got != tc.want || ok != tc.ok {
			t.Errorf("%v: %v, %v, want %v, %v", tc.err, got, ok, tc.want, tc.ok)
		}
	}
}

// Every pause is at least what the error says, and longer by less than the bound of the
// back-off, which doubles up to its most.
func TestRetryObeysRetryAfter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ms := func(most int, label string) time.Duration {
			return time.Duration(rapid.IntRange(1, most).Draw(rt, label)) * time.Millisecond
		}
		b := client.Backoff{First: ms(1000, "first"), Most: ms(10_000, "most"), Tries: rapid.IntRange(1, 12).Draw(rt, "tries")}
		waits := make([]time.Duration, rapid.IntRange(0, 12).Draw(rt, "failures"))
		for i := range waits {
			waits[i] = time.Duration(rapid.IntRange(0, 3600).Draw(rt, "wait")) * time.Second
		}
		synctest.Test(t, func(t *testing.T) {
			tries, bound, last := 0, min(b.First, b.Most), time.Now()
			err := client.Retry(t.Context(), b, func(context.Context) error {
				pause := time.Since(last)
				last = time.Now()
				if tries > 0 {
					if over := pause - waits[tries-1]; over < 0 || over > bound {
						rt.Errorf("try %d came after %v, want %v to %v more", tries+1, pause, waits[tries-1], bound)
					}
					bound = min(2*bound, b.Most)
				}
				tries++
				if tries > len(waits) {
					return nil
				}
				return statusError(codes.ResourceExhausted, retryInfo(waits[tries-1]))
			})
			if want := min(b.Tries, len(waits)+1); tries != want || (err == nil) != (b.Tries > len(waits)) {
				rt.Errorf("%v after %d tries, want %d", err, tries, want)
			}
		})
	})
}

// Callers that failed together do not come back together.
func TestRetryJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, seen := time.Now(), make(map[time.Duration]bool)
		for range 100 {
			begin, tries := time.Now(), 0
			if err := client.Retry(t.Context(), client.Backoff{First: time.Second}, func(context.Context) error {
				if tries++; tries == 1 {
					return denied(time.Minute)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			seen[time.Since(begin)] = true
		}
		if mean := time.Since(start) / 100; len(seen) < 90 || mean < time.Minute+300*time.Millisecond || mean > time.Minute+700*time.Millisecond {
			t.Errorf("%d different pauses, %v on average, want all, and 1m0.5s", len(seen), mean)
		}
	})
}

func TestRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, tries := time.Now(), 0
		fail := func(err error) func(context.Context) error {
			tries = 0
			return func(context.Context) error { tries++; return err }
		}
		hopeless := errors.New("no such host")
		if err := client.Retry(t.Context(), client.Backoff{}, fail(hopeless)); !errors.Is(err, hopeless) || tries != 1 {
			t.Errorf("%v after %d tries, want the lasting error", err, tries)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		late := denied(time.Hour)
		if err := client.Retry(ctx, client.Backoff{}, fail(late)); !errors.Is(err, late) || tries != 1 || time.Since(start) != 0 {
			t.Errorf("%v after %d tries and %v, want to know at once", err, tries, time.Since(start))
		}
		if err := client.Retry(ctx, client.Backoff{}, fail(denied(1<<63-1))); err == nil || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
		canceled, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, stop)
		if err := client.Retry(canceled, client.Backoff{}, fail(late)); !errors.Is(err, late) || !errors.Is(err, context.Canceled) || time.Since(start) != time.Minute {
			t.Errorf("%v after %v, want that it was canceled", err, time.Since(start))
		}
	})
}
