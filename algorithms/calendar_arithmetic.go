package algorithms

import (
	"math"
	"time"
)

// A calendar's windows are numbered, window n begins at the first instant at which the clock on the wall
// shows its first second or a later one, and ends where the next one begins. So they follow each other
// without gap or overlap, however the clock is set: a day on which it is set has 23 or 25 hours, one whose
// midnight is skipped begins after it, one that is skipped as a whole has no window, and one that the clock
// goes back to (until 2011 St. John's set it at 00:01) does not begin twice.
//
// Minutes and hours are too short for that: where the clock is set, one window
// ends and another begins, and so an hour that occurs twice is two windows.

// window returns the start, in Unix nanoseconds, and the length, in seconds, of
// the window that now lies in.
func (c *Calendar) window(now int64) (start, seconds int64) {
	t := time.Unix(now/int64(time.Second), 0).In(c.zone)
	var end int64
	if c.unit.seconds > 0 {
		start, end = c.tick(t)
	} else {
		start, end = c.days(t)
	}
	return start * int64(time.Second), end - start
}

// tick returns the minute or hour of t, in Unix seconds.
func (c *Calendar) tick(t time.Time) (start, end int64) {
	_, offset := t.Zone()
	local := t.Unix() + int64(offset)
	start = floorDiv(local, c.unit.seconds)*c.unit.seconds - int64(offset)
	end = start + c.unit.seconds
	from, _ := t.ZoneBounds()
	if from.Unix() > start && c.offset(from.Unix()-1) != offset {
		start = from.Unix()
	}
	if to := c.offsetUntil(t.Unix()); to < end && c.offset(to) != offset {
		end = to
	}
	return start, end
}

// days returns the window of t of a unit of days or months, in Unix seconds.
func (c *Calendar) days(t time.Time) (start, end int64) {
	n := c.number(t)
	start, end = c.begin(n), c.begin(n+1)
	for end <= t.Unix() { // the clock was set back over the beginning of the next
		n++
		start, end = end, c.begin(n+1)
	}
	return start, end
}

// number returns the number of the window that the date of t lies in.
func (c *Calendar) number(t time.Time) int64 {
	year, month, d := t.Date()
	if c.unit.days > 0 {
		return floorDiv(dayNumber(year, month, int64(d))-c.firstDay(), c.unit.days)
	}
	months := int64(year)*12 + int64(month) - 1
	if int64(d) < c.dayOf(year, month) {
		months--
	}
	return floorDiv(months-c.firstMonth(), c.unit.months)
}

// begin returns when window n begins, in Unix seconds.
func (c *Calendar) begin(n int64) int64 {
	if c.unit.days > 0 {
		return c.shows(n*c.unit.days + c.firstDay())
	}
	months := n*c.unit.months + c.firstMonth()
	year, month := int(floorDiv(months, 12)), time.Month(months-floorDiv(months, 12)*12+1)
	return c.shows(dayNumber(year, month, c.dayOf(year, month)))
}

// firstDay returns the day number on which window 0 begins, of a unit of days.
func (c *Calendar) firstDay() int64 {
	if c.unit.days == 1 {
		return 0
	}
	return c.anchor - 4 // day 0 was a Thursday
}

// firstMonth returns the month, counted from that of year 0, with which window 0
// begins, of a unit of months.
func (c *Calendar) firstMonth() int64 {
	if c.unit.months == 1 {
		return 0
	}
	return c.anchor - 1
}

// dayOf returns the day of a month on which a window of months begins.
func (c *Calendar) dayOf(year int, month time.Month) int64 {
	if c.unit.months > 1 {
		return 1
	}
	last := time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
	return min(c.anchor, int64(last))
}

// shows returns the first instant, in Unix seconds, at which the clock on the
// wall shows a day or a later one.
func (c *Calendar) shows(number int64) int64 {
	local := number * int64(day/time.Second)
	at := local - int64(2*day/time.Second) // no zone is that far ahead
	for {
		first := max(at, local-int64(c.offset(at)))
		to := c.offsetUntil(at)
		if first < to {
			return first
		}
		at = to
	}
}

// offset returns how far the clock on the wall is ahead of UTC at an instant in
// Unix seconds, in seconds.
func (c *Calendar) offset(at int64) int {
	_, offset := time.Unix(at, 0).In(c.zone).Zone()
	return offset
}

// offsetUntil returns a later instant until which the offset stays what it is at
// an instant, both in Unix seconds.
func (c *Calendar) offsetUntil(at int64) int64 {
	_, to := time.Unix(at, 0).In(c.zone).ZoneBounds()
	switch {
	case to.IsZero():
		return math.MaxInt64
	case to.Unix() <= at: // beyond its tables, Go ends every year after 365 days
		return to.Unix() + int64(day/time.Second)
	default:
		return to.Unix()
	}
}

// dayNumber counts days from 1970-01-01.
func dayNumber(year int, month time.Month, d int64) int64 {
	return time.Date(year, month, int(d), 0, 0, 0, 0, time.UTC).Unix() / int64(day/time.Second)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
