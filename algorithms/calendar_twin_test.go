package algorithms

import (
	"strings"
	"testing"
	"time"
)

// calendarEdges walks a zone in steps of seconds and notes, in Unix seconds,
// where the clock on the wall first shows another period or a later one, and for
// hours every instant at which it shows another or is set.
func calendarEdges(zone *time.Location, from, to time.Time, step int64, periods map[string]func(time.Time) int) map[string][]int64 {
	edges := make(map[string][]int64)
	highest := make(map[string]int)
	hour, offset := -1, 0
	for at := from.Unix(); at < to.Unix(); at += step {
		now := time.Unix(at, 0).In(zone)
		for name, period := range periods {
			if p := period(now); p > highest[name] {
				highest[name] = p
				edges[name] = append(edges[name], at)
			}
		}
		if _, o := now.Zone(); now.Hour() != hour || o != offset {
			hour, offset = now.Hour(), o
			edges["hour"] = append(edges["hour"], at)
		}
	}
	return edges
}

// The twin of calendars walks through years, a quarter of an hour at a time, or
// a minute where the clock was set at 00:01.
func TestCalendarAgainstTwin(t *testing.T) {
	date := func(now time.Time) int { return now.Year()*10000 + int(now.Month())*100 + now.Day() }
	periods := map[string]func(time.Time) int{
		"day": date,
		"week/3": func(now time.Time) int { // the date of the last Wednesday
			return date(now.AddDate(0, 0, -(int(now.Weekday())+4)%7))
		},
		"month": func(now time.Time) int { return date(now) / 100 },
		"month/30": func(now time.Time) int {
			last := time.Date(now.Year(), now.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
			if now.Day() < min(30, last) {
				return now.Year()*12 + int(now.Month()) - 1
			}
			return now.Year()*12 + int(now.Month())
		},
		"quarter/3": func(now time.Time) int { return (now.Year()*12 + int(now.Month())) / 3 },
		"year/9":    func(now time.Time) int { return (now.Year()*12 + int(now.Month()) - 9) / 12 },
	}
	for _, name := range oddZones {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{2010, 2047} {
			step := int64(15 * 60)
			if name == "America/St_Johns" && from == 2010 {
				step = 60
			}
			edges := calendarEdges(zone, time.Date(from, 1, 1, 0, 0, 0, 0, zone), time.Date(from+2, 1, 1, 0, 0, 0, 0, zone), step, periods)
			for unit, starts := range edges {
				unit, anchor, _ := strings.Cut(unit, "/")
				c := calendar(t, strings.TrimSuffix(unit+"/"+name+"/"+anchor, "/"))
				for i := 1; i+1 < len(starts); i++ { // the first was under way, the last goes on
					start, length := starts[i]*1e9, starts[i+1]-starts[i]
					for _, now := range []int64{start, start + min(length, 30*60)*1e9 - 1, start + length*1e9 - 1} {
						if got, seconds := c.window(now); got != start || seconds != length {
							t.Fatalf("%s at %v: from %v for %d s, want from %v for %d s", c, time.Unix(0, now).In(zone),
								time.Unix(0, got).In(zone), seconds, time.Unix(0, start).In(zone), length)
						}
					}
				}
			}
		}
	}
}
