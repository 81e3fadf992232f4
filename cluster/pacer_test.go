package cluster

import (
	"testing"
	"time"
)

func TestPaceTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	type frame struct {
		takes int
		took  time.Duration
	}
	for _, tc := range []struct {
		name   string
		frames []frame
		most   int
	}{
		{"nothing measured", nil, firstBacklog},
		{"small frames say nothing", []frame{{fullFrame - 1, time.Second}, {0, time.Second}}, firstBacklog},
		{"1,000 takes in 2 ms", []frame{{1000, 2 * time.Millisecond}}, 1000 * 25 / 2 / 2},
		{"always so", []frame{{1000, 2 * time.Millisecond}, {1000, 2 * time.Millisecond}, {1000, 2 * time.Millisecond}}, 6251},
		{"a pause", []frame{{1000, 2 * time.Millisecond}, {1000, time.Second}}, minBacklog},
		{"the pause is forgotten", append([]frame{{1000, time.Second}}, repeat(frame{1000, time.Millisecond}, 40)...), 12468},
		{"faster than the clock", []frame{{1000, 0}}, firstBacklog},
	} {
		p := pacer{attempt: 25 * time.Millisecond}
		for _, f := range tc.frames {
			p.sending(t0)
			p.answered(f.takes, t0.Add(f.took))
		}
		if got := p.most(); got != tc.most {
			t.Errorf("%s: at most %d, want %d", tc.name, got, tc.most)
		}
	}
}

func repeat[T any](v T, n int) (s []T) {
	for range n {
		s = append(s, v)
	}
	return s
}

func TestPaceStalls(t *testing.T) {
	t0 := time.Unix(1000, 0)
	p := pacer{attempt: 25 * time.Millisecond}
	if p.stalled(t0) {
		t.Error("stalled with nothing under way")
	}
	p.sending(t0)
	if p.stalled(t0.Add(24*time.Millisecond)) || !p.stalled(t0.Add(25*time.Millisecond)) {
		t.Error("not stalled after an attempt, or before")
	}
	p.answered(fullFrame, t0.Add(26*time.Millisecond))
	if p.stalled(t0.Add(time.Second)) {
		t.Error("stalled after the answer")
	}
	p.broken()
	if p != (pacer{attempt: 25 * time.Millisecond}) {
		t.Errorf("the next stream begins with %+v", p)
	}
}
