package algorithms

import (
	"fmt"
	"testing"
	"time"
)

func TestValidate(t *testing.T) {
	ok := Limit{Algorithm: SlidingWindow, Limit: 1, Window: int64(time.Second)}
	utcMonth := calendar(t, "month/UTC")
	with := func(change func(*Limit)) Limit { l := ok; change(&l); return l }
	for _, tc := range []struct {
		limit Limit
		want  string
	}{
		{ok, "<nil>"},
		{Limit{}, fmt.Sprintf("algorithm: algorithm(0) is not one of %v", Names())},
		{with(func(l *Limit) { l.Limit = -1 }), "limit: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Limit = MaxLimit + 1 }), "limit: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Window = 9_999_999 }), "window: 9.999999ms is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Window = int64(MaxWindow) + 1 }), "window: 8784h0m0.000000001s is not between 10ms and 8784h0m0s"},
		{with(func(l *Limit) { l.Burst = 5 }), "burst: 5 is not for sliding_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = FixedWindow, -1 }), "burst: -1 is not for fixed_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, MaxLimit }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = TokenBucket, -1 }), "burst: -1 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm, l.Burst = GCRA, MaxLimit+1 }), "burst: 2147483649 is not between 0 and 2147483648"},
		{with(func(l *Limit) { l.Algorithm = 255 }), fmt.Sprintf("algorithm: algorithm(255) is not one of %v", Names())},
		{with(func(l *Limit) { l.Algorithm, l.Limit = SlidingWindowLog, MaxLog }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Limit = SlidingWindowLog, MaxLog+1 }), "limit: 10001 is not between 0 and 10000, the most that sliding_window_log keeps"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, 3600 }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, 3601 }), "buckets: 3601 is not between 1 and 3600, or 0 for 60"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowBuckets, -1 }), "buckets: -1 is not between 1 and 3600, or 0 for 60"},
		{with(func(l *Limit) { l.Algorithm, l.Buckets = SlidingWindowLog, 60 }), "buckets: 60 is not for sliding_window_log, which has none"},
		{with(func(l *Limit) { l.MaxDelay = 1 }), "max_delay: 1ns is not for sliding_window, which has none"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = GCRA, -1 }), "max_delay: -1ns is not between 0s and 8784h0m0s"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = LeakyBucket, int64(MaxWindow)+1 }), "max_delay: 8784h0m0.000000001s is not between 0s and 8784h0m0s"},
		{with(func(l *Limit) { l.Algorithm, l.MaxDelay = GCRA, int64(MaxWindow) }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = GCRA, MaxLimit-3, 3e9 }), "<nil>"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = GCRA, MaxLimit-3, 3e9+1 }), "max_delay: 3.000000001s lets more than 2147483648 tokens be booked: 2147483645, and 1 per 1s ahead"},
		{with(func(l *Limit) { l.Algorithm, l.Burst, l.MaxDelay = LeakyBucket, MaxLimit-3, 3e9+1 }), "<nil>"},
		{with(func(l *Limit) { l.Calendar = utcMonth }), "calendar: month/UTC is not for sliding_window, only for fixed_window"},
		{with(func(l *Limit) { l.Algorithm, l.Calendar = FixedWindow, utcMonth }), "window: 1s is not 0, and calendar month/UTC takes its place"},
		{with(func(l *Limit) { l.Algorithm, l.Calendar, l.Window = FixedWindow, utcMonth, 0 }), "<nil>"},
	} {
		if got := fmt.Sprint(tc.limit.Validate()); got != tc.want {
			t.Errorf("%+v: %s, want %s", tc.limit, got, tc.want)
		}
	}
}
