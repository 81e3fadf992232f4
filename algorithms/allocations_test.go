package algorithms

import (
	"testing"
	"time"
)

func TestStepsDoNotAllocate(t *testing.T) {
	for _, name := range Names() {
		a, _ := Parse(name)
		l := &Limit{Algorithm: a, Limit: 100, Window: int64(time.Second)}
		if a.HasCalendars() {
			l.Window, l.Calendar = 0, calendar(t, "minute/Europe/Paris")
		}
		var c counter
		now := int64(0)
		step := func() {
			now += int64(time.Second) / 150 // a third is denied
			d := c.step(l, now, 1)
			c.step(l, now, -1)
			c.step(l, now, 1)
			c.giveBack(l, now-1e8, d.At, 1)
			c.charge(l, now, d.At, 1)
			c.giveBack(l, now, d.At, 1)
			if !a.Long() {
				Merge(l, c.state, c.state, now)
			}
			c.step(l, now, 1)
		}
		for range 1000 { // until a long one has grown
			step()
		}
		if allocs := testing.AllocsPerRun(1000, step); allocs != 0 {
			t.Errorf("%v: %v allocations", a, allocs)
		}
	}
	text := calendar(t, "month/Europe/Paris/15").String()
	if allocs := testing.AllocsPerRun(100, func() { calendar(t, text) }); allocs != 0 {
		t.Errorf("ParseCalendar: %v allocations", allocs)
	}
}
