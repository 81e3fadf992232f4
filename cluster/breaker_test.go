package cluster

import (
	"testing"
	"time"
)

func TestBreakerTimeline(t *testing.T) {
	t0 := time.Unix(1000, 0)
	ms := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Millisecond) }
	type step struct {
		what    string
		do      func(b *breaker)
		healthy bool
	}
	connected := func(at int) step {
		return step{"connected", func(b *breaker) { b.connected(ms(at)) }, false}
	}
	ping := func(at int, healthy bool) step {
		return step{"ping", func(b *breaker) {
			if !b.tick(ms(at)) {
				t.Errorf("no ping at %d ms", at)
			}
		}, healthy}
	}
	quiet := func(at int, healthy bool) step {
		return step{"no ping", func(b *breaker) {
			if b.tick(ms(at)) {
				t.Errorf("a ping at %d ms", at)
			}
		}, healthy}
	}
	pong := func(at int, healthy bool) step {
		return step{"pong", func(b *breaker) { b.pong(ms(at)) }, healthy}
	}
	late := func(sent, at int, healthy bool) step {
		return step{"late", func(b *breaker) { b.timedOut(ms(sent), ms(at)) }, healthy}
	}
	answered := func(at int, healthy bool) step {
		return step{"answered", func(b *breaker) { b.answered(ms(at)) }, healthy}
	}
	broken := step{"broken", func(b *breaker) { b.broken() }, false}
	up := []step{connected(0), ping(0, false), pong(1, true)}

	for _, tl := range []struct {
		name  string
		steps []step
	}{
		{"the first quick pong closes it", up},
		{"a broken stream opens it", append(up[:3:3], broken)},
		{"three timeouts in a row open it", append(up[:3:3],
			late(10, 35, true), late(40, 65, true), late(70, 95, false))},
		{"an answer in between restarts the count", append(up[:3:3],
			late(10, 35, true), late(40, 65, true), answered(66, true), late(70, 95, true), late(100, 125, true))},
		{"timeouts of one moment count once", append(up[:3:3],
			late(10, 35, true), late(10, 35, true), late(11, 36, true), late(12, 37, true), late(13, 38, true))},
		{"callers in a hurry do not count", append(up[:3:3],
			late(10, 34, true), late(40, 64, true), late(70, 94, true), late(100, 124, true))},
		{"time in which this node was stopped is no silence", append(up[:3:3],
			ping(251, true), pong(252, true), ping(7252, true), quiet(7502, true), quiet(7752, true), quiet(8002, false), pong(8003, false))},
		{"a slow pong does not close it, a quick one does", append(up[:3:3],
			late(10, 35, true), late(40, 65, true), late(70, 95, false),
			ping(250, false), pong(280, false), ping(500, false), pong(525, true))},
		{"no second ping while one is under way", append(up[:3:3],
			ping(300, true), quiet(550, true), quiet(740, true), quiet(751, false))},
		{"no ping while the peer talks", append(up[:3:3], answered(240, true), quiet(250, true), answered(480, true), quiet(500, true))},
		{"silence opens it", append(up[:3:3], ping(251, true), quiet(500, true), quiet(760, false), pong(5000, false), ping(5001, false), pong(5002, true))},
	} {
		t.Run(tl.name, func(t *testing.T) {
			b := breaker{attempt: DefaultAttemptTimeout}
			for i, s := range tl.steps {
				if s.do(&b); b.healthy != s.healthy {
					t.Errorf("step %d, %s: healthy %v, want %v", i, s.what, b.healthy, s.healthy)
				}
			}
		})
	}
}
