package algorithms

import "testing"

// Two counts of 3 and 4 tokens of 5 are one of 7.
func TestMergeTimeline(t *testing.T) {
	for _, tc := range []struct {
		algorithm    Algorithm
		a, b         int64 // when 3 were taken, and when 4 were
		now, retryAt int64 // when two more are asked for, and when they have room
	}{
		{FixedWindow, at(1, 0), at(1, 50), at(1, 60), at(2, 0)},
		{FixedWindow, at(1, 50), at(2, 0), at(2, 10), at(3, 0)},                 // the 3 are over
		{SlidingWindow, at(1, 0), at(1, 50), at(1, 60), at(2, 0) + 25714285715}, // 7 fade to less than 4
		{SlidingWindow, at(1, 50), at(2, 0), at(2, 10), at(3, 0) + 1},           // the 3 fade within this window, the 4 in the next
		{TokenBucket, at(1, 0), at(1, 0), at(1, 0), at(1, 80)},
		{TokenBucket, at(1, 0), at(1, 0), at(1, 20), at(1, 60)}, // each has drained by 1
	} {
		l := &Limit{Algorithm: tc.algorithm, Limit: 5, Window: minute}
		a, _ := Step(l, State{}, tc.a, 3)
		b, _ := Step(l, State{}, tc.b, 4)
		if _, d := Step(l, Merge(l, a, b, tc.now), tc.now, 2); d.Allowed || d.RetryAt != tc.retryAt {
			t.Errorf("%+v: %+v", tc, d)
		}
	}
}
