package algorithms

import (
	"testing"
	"time"
)

func BenchmarkStep(b *testing.B) {
	for _, name := range Names() {
		a, _ := Parse(name)
		most := a.MostTokens()
		for _, bc := range []struct {
			name  string
			limit Limit
		}{
			{"allowed", Limit{Limit: most, Window: int64(time.Second)}},
			{"denied", Limit{Limit: 10, Window: int64(time.Second)}},
			{"waits", Limit{Limit: 1000, Window: int64(time.Second), MaxDelay: int64(time.Second)}},
			{"calendar", Limit{Limit: 1000, Calendar: calendar(b, "month/Europe/Paris/15")}},
		} {
			if bc.limit.Algorithm = a; bc.limit.Validate() != nil {
				continue // has no delays, or no calendars
			}
			b.Run(name+"/"+bc.name, func(b *testing.B) { bc.limit.benchmark(b) })
		}
	}
}

func (l *Limit) benchmark(b *testing.B) {
	const apart = 1e9 / MaxLog / 2 // half of what a full log takes
	now := time.Now().UnixNano()
	b.ReportAllocs()
	if l.Algorithm.Long() {
		var x Long
		for range 3 * MaxLog { // until it has grown
			now += apart
			x.Step(l, now, 1, true)
		}
		for b.Loop() {
			now += apart
			x.Step(l, now, 1, true)
		}
		return
	}
	var s State
	for b.Loop() {
		now += apart
		s, _ = Step(l, s, now, 1)
	}
}
