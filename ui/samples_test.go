package ui

import (
	"math"
	"testing"
	"time"
)

// Rates are between two loads of a node, which begins at 0 when it was started again, and has none once it is silent.
func TestRates(t *testing.T) {
	var s samples
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 123456789).Add(time.Duration(seconds * float64(time.Second)))
	}
	load := func(id string, seconds float64, allowed, denied uint64) Load {
		return Load{ID: id, At: at(seconds), Allowed: allowed, Denied: denied, Bounds: []time.Duration{time.Millisecond}, Calls: []uint64{allowed, denied}}
	}
	for _, row := range []struct {
		now      float64
		loads    []Load
		allowed  float64
		denied   float64
		reported int
	}{
		{0, []Load{load("a", 0, 100, 10), load("b", 0, 5, 0)}, 0, 0, 0},
		{2, []Load{load("a", 2, 300, 10), load("b", 1, 15, 4)}, 100 + 10, 4, 2},
		{4, []Load{load("a", 2, 300, 10), load("b", 3, 15, 4)}, 100, 0, 2}, // nothing new of a
		{8, []Load{load("a", 2, 300, 10), load("b", 7, 15, 4)}, 0, 0, 1},   // a is silent
		{10, []Load{load("a", 10, 80, 0), load("b", 9, 15, 4)}, 10, 0, 2},  // a was started again
	} {
		s.add(at(row.now), row.loads)
		points, byNode, last := s.after(at(row.now - 1))
		if row.now == 0 {
			if len(points) != 0 || len(last) != 2 {
				t.Fatalf("%d points of the first sample", len(points))
			}
			continue
		}
		if again, _, _ := s.after(time.UnixMilli(points[len(points)-1].at.UnixMilli())); len(again) != 0 { // as pages ask
			t.Errorf("after %v s: %d points come twice", row.now, len(again))
		}
		if len(points) != 1 || math.Abs(points[0].allowed-row.allowed) > 1e-9 || math.Abs(points[0].denied-row.denied) > 1e-9 || len(byNode) != row.reported {
			t.Errorf("after %v s: %+v, %+v; want %v and %v per second of %d nodes", row.now, points, byNode, row.allowed, row.denied, row.reported)
		}
	}
	for i := range 2 * maxSamples {
		s.add(at(float64(20+i)), nil)
	}
	if points, _, _ := s.after(time.Time{}); len(points) != maxSamples {
		t.Errorf("%d points, want %d", len(points), maxSamples)
	}
}

func TestQuantile(t *testing.T) {
	ms := time.Millisecond
	bounds := []time.Duration{ms, 10 * ms, 100 * ms}
	for _, row := range []struct {
		calls []uint64
		q     float64
		want  time.Duration
	}{
		{[]uint64{0, 0, 0, 0}, 0.5, 0},
		{[]uint64{10, 0, 0, 0}, 0.5, ms / 2},
		{[]uint64{5, 5, 0, 0}, 0.5, ms},
		{[]uint64{0, 10, 0, 0}, 0.5, 5500 * time.Microsecond},
		{[]uint64{50, 0, 0, 50}, 0.99, 100 * ms}, // above all bounds
		{[]uint64{1, 2}, 0.5, 0},                 // not by these bounds
	} {
		if got := quantile(bounds, row.calls, row.q); got != row.want {
			t.Errorf("%v of %v: %v, want %v", row.q, row.calls, got, row.want)
		}
	}
}
