package algorithms

import (
	"testing"
	"time"
)

func TestTokenBucketTimeline(t *testing.T) {
	four := &Limit{Algorithm: TokenBucket, Limit: 4, Window: minute}
	for _, tl := range []timeline{
		{"the book: a bucket of 4, refilled 4 per minute", four, []timelineStep{
			{at(1, 0), 1, true, 3, 0},
			{at(1, 0), 3, true, 0, 0}, // empty
			{at(1, 20), 1, false, 0, 0},
			{at(1, 25), 1, true, 0, 0}, // 1 in 15 s
			{at(2, 25), 4, true, 0, 0}, // full again in a minute
		}},
		{"a bucket is never more than full", four, []timelineStep{
			{at(1, 0), 4, true, 0, 0},
			{at(1, 50), 0, true, 2, 0},
			{at(9, 0), 5, false, 4, 0},
			{at(9, 0), 4, true, 0, 0},
			{at(9, 0), 1, false, 0, 0},
		}},
		{"10 of 4 per minute at once, then 4 per minute", &Limit{Algorithm: TokenBucket, Limit: 4, Window: minute, Burst: 10}, []timelineStep{
			{at(1, 0), 10, true, 0, 0},
			{at(1, 99), 4, false, 3, 0},
			{at(2, 0), 4, true, 0, 0},
			{at(3, 50), 0, true, 6, 0},
			{at(4, 50), 11, false, 10, 0},
		}},
		{"tokens come back, never more than the bucket holds", four, []timelineStep{
			{at(1, 0), 4, true, 0, 0},
			{at(1, 0), -1, true, 1, 0},
			{at(1, 0), -9, true, 4, 0},
			{at(1, 0), 5, false, 4, 0},
		}},
		{"time that goes backwards frees nothing", four, []timelineStep{
			{at(5, 0), 3, true, 1, 0},
			{at(4, 0), 2, false, 1, 0},
			{at(1, 0), 1, true, 0, 0}, // and an hour lost does not lock out for an hour
			{at(5, 24), 1, false, 0, 0},
			{at(5, 25), 1, true, 0, 0},
		}},
		{"a limit of nothing, with any burst", &Limit{Algorithm: TokenBucket, Window: minute, Burst: 9}, []timelineStep{
			{at(1, 0), 1, false, 0, 0},
			{at(1, 0), 0, true, 0, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestGCRATimeline(t *testing.T) {
	for _, tl := range []timeline{
		{"one every 15 s, none early", &Limit{Algorithm: GCRA, Limit: 4, Window: minute, Burst: 1}, []timelineStep{
			{at(1, 0), 1, true, 0, 0},
			{at(1, 24), 1, false, 0, 0},
			{at(1, 25), 1, true, 0, 0},
			{at(1, 60), 1, true, 0, 0}, // late: the next is due 15 s from here
			{at(1, 75), 1, false, 0, 0},
			{at(1, 85), 1, true, 0, 0},
		}},
		{"one every 15 s, two early", &Limit{Algorithm: GCRA, Limit: 4, Window: minute, Burst: 3}, []timelineStep{
			{at(1, 0), 1, true, 2, 0}, // the next is expected at 25 %,
			{at(1, 0), 1, true, 1, 0}, // at 50 %,
			{at(1, 0), 1, true, 0, 0}, // at 75 %: more than two early
			{at(1, 24), 1, false, 0, 0},
			{at(1, 25), 1, true, 0, 0},
			{at(2, 0), 3, true, 0, 0},
		}},
		{"3 per second do not divide a second: the third is exact", &Limit{Algorithm: GCRA, Limit: 3, Window: 1e9, Burst: 1}, []timelineStep{
			{0, 1, true, 0, 0},
			{333_333_333, 1, false, 0, 0},
			{333_333_334, 1, true, 0, 0}, // due at 333,333,333 1/3
			{666_666_667, 1, false, 0, 0},
			{666_666_668, 1, true, 0, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

func TestLeakyBucketTimeline(t *testing.T) {
	second := int64(time.Second)
	four := &Limit{Algorithm: LeakyBucket, Limit: 4, Window: second}
	for _, tl := range []timeline{
		{"the book: a queue of 4 from which 4 leave per second", four, []timelineStep{
			{0, 1, true, 3, 0},
			{0, 1, true, 2, second / 4},
			{0, 1, true, 1, second / 2},
			{0, 1, true, 0, 3 * second / 4},
			{0, 1, false, 0, 0}, // the queue is full
			{second/4 - 1, 1, false, 0, 0},
			{second / 4, 1, true, 0, 3 * second / 4}, // the first has left, and this is the last
			{5 * second, 4, true, 0, 0},              // all have left: at once
		}},
		{"a short queue before a slow outlet", &Limit{Algorithm: LeakyBucket, Limit: 1, Window: minute, Burst: 2}, []timelineStep{
			{at(1, 0), 1, true, 1, 0},
			{at(1, 50), 1, true, 0, minute / 2},
			{at(1, 99), 1, false, 0, 0},
			{at(2, 0), 1, true, 0, minute},
			{at(2, 0), 3, false, 0, 0}, // never fits
		}},
		{"no queue longer than 300 ms", &Limit{Algorithm: LeakyBucket, Limit: 4, Window: second, MaxDelay: 3 * second / 10}, []timelineStep{
			{0, 1, true, 1, 0},
			{0, 1, true, 0, second / 4}, // a third would wait for 500 ms
			{0, 1, false, 0, 0},
			{second/5 - 1, 1, false, 0, 0},
			{second / 5, 1, true, 0, 3 * second / 10},
			{second / 5, 0, true, 0, 0},
			{9 * second, 0, true, 2, 0},
		}},
		{"leaving the queue lets the others move up", four, []timelineStep{
			{0, 4, true, 0, 0},
			{0, -1, true, 1, 0},
			{0, 1, true, 0, 3 * second / 4},
			{0, -9, true, 4, 0},
		}},
	} {
		t.Run(tl.name, func(t *testing.T) { tl.play(t) })
	}
}

// Instead of being denied, requests wait.
func TestMaxDelayTimeline(t *testing.T) {
	for _, a := range []Algorithm{TokenBucket, GCRA} {
		four := &Limit{Algorithm: a, Limit: 4, Window: minute, MaxDelay: minute / 2}
		for _, tl := range []timeline{
			{"4 per minute, with waits of 30 s at most", four, []timelineStep{
				{at(1, 0), 4, true, 0, 0},
				{at(1, 0), 1, true, 0, minute / 4},
				{at(1, 0), 1, true, 0, minute / 2},
				{at(1, 0), 1, false, 0, 0}, // would wait for 45 s
				{at(1, 24), 1, false, 0, 0},
				{at(1, 25), 1, true, 0, minute / 2},
				{at(1, 25), 0, true, 0, 0},
				{at(1, 75), 0, true, 0, 0}, // the debt is paid
				{at(2, 0), 0, true, 1, 0},
			}},
			{"a cost waits until all of it is there", four, []timelineStep{
				{at(1, 0), 3, true, 1, 0},
				{at(1, 0), 4, false, 1, 0},
				{at(1, 0), 3, true, 0, minute / 2},
				{at(9, 0), 5, false, 4, 0}, // more than the bucket holds
			}},
			{"given back, the debt is less", four, []timelineStep{
				{at(1, 0), 4, true, 0, 0},
				{at(1, 0), 2, true, 0, minute / 2},
				{at(1, 0), -1, true, 0, 0},
				{at(1, 0), 1, true, 0, minute / 2},
				{at(1, 0), -3, true, 1, 0},
			}},
		} {
			t.Run(a.String()+"/"+tl.name, func(t *testing.T) { tl.play(t) })
		}
	}
}
