package algorithms

import (
	"math"
	"testing"
	"time"
)

// What takes longer than time lasts never happens, however much longer it is.
func TestBeyondTheEndOfTime(t *testing.T) {
	for _, burst := range []int64{300, 400, 600, MaxLimit} { // 300, 400, 600 and 2^31 years
		l := &Limit{Algorithm: TokenBucket, Limit: 1, Window: int64(MaxWindow), Burst: burst}
		s, d := Step(l, State{}, 1, burst)
		if !d.Allowed || d.ResetAt != math.MaxInt64 {
			t.Errorf("burst %d: %+v", burst, d)
		}
		if _, d = Step(l, s, 1, burst); d.Allowed || d.RetryAt != Never {
			t.Errorf("burst %d again: %+v", burst, d)
		}
		if _, d = Step(l, s, 1, 1); d.Allowed || d.RetryAt != 1+int64(MaxWindow) {
			t.Errorf("burst %d and one more: %+v", burst, d)
		}
	}
}

// A blocked bucket never drains, and yet is not remembered for ever.
func TestBlockedBucketIsRememberedForAWindow(t *testing.T) {
	l := &Limit{Algorithm: TokenBucket, Limit: 5, Window: int64(time.Minute)}
	s, _ := Step(l, State{}, 100, 5)
	l.Limit = 0
	s, d := Step(l, s, 200, 1)
	if want := (Decision{At: 200, RetryAt: Never, ResetAt: 200 + int64(time.Minute)}); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
	if _, d = Step(l, s, 300+int64(time.Hour), 0); d.ResetAt == d.At {
		t.Errorf("drained: %+v", d)
	}
	if _, d = Step(l, State{}, 300, 1); d.ResetAt != 300 {
		t.Errorf("never used: %+v", d)
	}
}

// The grain of time is as the meter's comment says: what went backwards is taken
// for the beginning of the grain, and still gives back whole tokens.
func TestGrain(t *testing.T) {
	const now = 1<<40 - 1 // the last nanosecond of any grain
	for _, tc := range []struct{ window, grain int64 }{
		{int64(MinWindow), 1},
		{1<<33 - 1, 1},
		{1 << 33, 2},
		{int64(time.Minute), 8},
		{int64(time.Hour), 1 << 9},
		{int64(MaxWindow), 1 << 22},
	} {
		l := &Limit{Algorithm: TokenBucket, Limit: MaxLimit, Window: tc.window}
		s, _ := Step(l, State{}, now, MaxCost)
		if _, d := Step(l, s, 0, 1); d.At != now+1-tc.grain || d.Allowed {
			t.Errorf("window %d: %d ns ago: %+v", tc.window, now-d.At, d)
		}
		s = Return(l, s, 0, now, MaxCost)
		if _, d := Step(l, s, now, MaxCost); !d.Allowed {
			t.Errorf("window %d: returned, and yet %+v", tc.window, d)
		}
	}
}

// The level carries from the low word of the state to the high one.
func TestLevelBeyond64Bits(t *testing.T) {
	l := &Limit{Algorithm: GCRA, Limit: 1, Window: 1 << 54, Burst: 1 << 11}
	var s State
	var d Decision
	for i := range int64(4) {
		if s, d = Step(l, s, 1, 1<<9); !d.Allowed || d.Remaining != (3-i)<<9 {
			t.Errorf("quarter %d: %+v", i, d)
		}
	}
	if _, d = Step(l, s, 1, 1); d.Allowed {
		t.Errorf("one more: %+v", d)
	}
}
