package algorithms

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"
)

// Zones whose clocks do what others do not.
var oddZones = []string{
	"UTC",
	"Europe/Paris",
	"America/Sao_Paulo",   // until 2018 set forward at midnight: days without one
	"America/St_Johns",    // 3.5 h behind, until 2011 set back at 00:01, to the day before
	"Australia/Lord_Howe", // set by half an hour
	"Asia/Kathmandu",      // 5.75 h ahead
	"Pacific/Apia",        // had no 30 December 2011
	"America/Havana",      // set back at 01:00: midnight comes twice
}

func calendar(t testing.TB, text string) *Calendar {
	c, err := ParseCalendar(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// instant reads a time such as "2018-11-04T01:00-02:00".
func instant(t *testing.T, text string) int64 {
	at, err := time.Parse("2006-01-02T15:04Z07:00", text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixNano()
}

// Each row is a window by its calendar, first instant and end.
func TestCalendarWindows(t *testing.T) {
	for _, tc := range []struct{ calendar, start, end string }{
		{"minute/UTC", "2024-02-29T23:59Z", "2024-03-01T00:00Z"},
		{"hour/Asia/Kathmandu", "2024-01-01T00:00+05:45", "2024-01-01T01:00+05:45"},
		{"day/Asia/Kathmandu", "2024-01-01T00:00+05:45", "2024-01-02T00:00+05:45"},

		// The day that has no midnight, and the one before it.
		{"day/America/Sao_Paulo", "2018-11-03T00:00-03:00", "2018-11-04T01:00-02:00"},
		{"day/America/Sao_Paulo", "2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"},
		{"day/Asia/Beirut", "2024-03-31T01:00+03:00", "2024-04-01T00:00+03:00"},
		{"day/Europe/Paris", "2024-03-31T00:00+01:00", "2024-04-01T00:00+02:00"}, // 23 h
		{"day/Europe/Paris", "2024-10-27T00:00+02:00", "2024-10-28T00:00+01:00"}, // 25 h
		{"day/America/Havana", "2024-11-03T00:00-04:00", "2024-11-04T00:00-05:00"},
		{"day/America/St_Johns", "2010-11-07T00:00-02:30", "2010-11-08T00:00-03:30"},
		{"day/Pacific/Apia", "2011-12-29T00:00-10:00", "2011-12-31T00:00+14:00"},

		// Hours that occur twice, in whole or in half, and one that is cut short.
		{"hour/Europe/Paris", "2024-10-27T02:00+02:00", "2024-10-27T02:00+01:00"},
		{"hour/Europe/Paris", "2024-10-27T02:00+01:00", "2024-10-27T03:00+01:00"},
		{"hour/Europe/Paris", "2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00"},
		{"hour/Australia/Lord_Howe", "2024-04-07T01:00+11:00", "2024-04-07T02:00+11:00"},
		{"hour/Australia/Lord_Howe", "2024-04-07T01:30+10:30", "2024-04-07T02:00+10:30"},
		{"hour/Australia/Lord_Howe", "2024-10-06T02:30+11:00", "2024-10-06T03:00+11:00"},
		{"hour/America/St_Johns", "2047-12-31T20:00-03:30", "2047-12-31T21:00-03:30"}, // Go's year ends at 20:30
		{"hour/America/St_Johns", "2048-12-30T20:00-03:30", "2048-12-30T21:00-03:30"}, // and a day early in leap years

		{"week/UTC", "2024-02-26T00:00Z", "2024-03-04T00:00Z"}, // from Monday on
		{"week/UTC/7", "2024-02-25T00:00Z", "2024-03-03T00:00Z"},
		{"week/America/New_York/7", "2024-03-10T00:00-05:00", "2024-03-17T00:00-04:00"},

		{"month/UTC", "2024-02-01T00:00Z", "2024-03-01T00:00Z"},
		{"month/Europe/Paris/15", "2024-03-15T00:00+01:00", "2024-04-15T00:00+02:00"},
		{"month/UTC/31", "2024-01-31T00:00Z", "2024-02-29T00:00Z"},
		{"month/UTC/31", "2024-02-29T00:00Z", "2024-03-31T00:00Z"},
		{"month/UTC/31", "2023-02-28T00:00Z", "2023-03-31T00:00Z"},
		{"month/UTC/30", "2023-12-30T00:00Z", "2024-01-30T00:00Z"},

		{"quarter/UTC", "2024-10-01T00:00Z", "2025-01-01T00:00Z"},
		{"quarter/UTC/2", "2023-11-01T00:00Z", "2024-02-01T00:00Z"},
		{"year/UTC", "2024-01-01T00:00Z", "2025-01-01T00:00Z"},
		{"year/Australia/Sydney/7", "2023-07-01T00:00+10:00", "2024-07-01T00:00+10:00"},
		{"year/Europe/Paris", "2101-01-01T00:00+01:00", "2102-01-01T00:00+01:00"},
		{"year/America/New_York", "1969-01-01T00:00-05:00", "1970-01-01T00:00-05:00"},
	} {
		c, start, end := calendar(t, tc.calendar), instant(t, tc.start), instant(t, tc.end)
		for _, now := range []int64{max(0, start), start + (end-start)/2, end - 1} {
			if got, seconds := c.window(max(0, now)); got != start || got+seconds*1e9 != end {
				zone := func(t int64) time.Time { return time.Unix(0, t).In(c.zone) }
				t.Errorf("%s at %v: %v to %v, want %v to %v", c, zone(now), zone(got), zone(got+seconds*1e9), zone(start), zone(end))
			}
		}
		if got, _ := c.window(end); got != end {
			t.Errorf("%s: after %s comes %v", c, tc.start, time.Unix(0, got).In(c.zone))
		}
	}
}

func TestCalendarTexts(t *testing.T) {
	for _, tc := range []struct{ text, want string }{
		{"day", "day/UTC"},
		{"day/UTC", "day/UTC"},
		{"week/UTC/0", "week/UTC"},
		{"week/UTC/1", "week/UTC"},
		{"month/America/Argentina/Buenos_Aires/15", "month/America/Argentina/Buenos_Aires/15"},
		{"quarter/UTC/11", "quarter/UTC/2"},
		{"year/UTC/11", "year/UTC/11"},
		{"hour/Etc/GMT+5", "hour/Etc/GMT+5"},

		{"", `calendar: "" is not one of [minute hour day week month quarter year]`},
		{"fortnight/UTC", `calendar: "fortnight" is not one of [minute hour day week month quarter year]`},
		{"day/Europe/Lutetia", `timezone: "Europe/Lutetia" is not an IANA time zone such as Europe/Paris`},
		{"day/Local", `timezone: "Local" is not an IANA time zone such as Europe/Paris`},
		{"day/right/UTC", `timezone: "right/UTC" is not an IANA time zone such as Europe/Paris`},
		{"day/../../etc/passwd", `timezone: "../../etc/passwd" is not an IANA time zone such as Europe/Paris`},
		{"day/Europe//Paris", `timezone: "Europe//Paris" is not an IANA time zone such as Europe/Paris`},
		{"day/./UTC", `timezone: "./UTC" is not an IANA time zone such as Europe/Paris`},
		{"day/UTC/1", "anchor: 1 is not for a day, which has none"},
		{"week/UTC/8", "anchor: 8 is not between 1 and 7"},
		{"month/UTC/-1", "anchor: -1 is not between 1 and 31"},
		{"year/UTC/13", "anchor: 13 is not between 1 and 12"},
	} {
		c, err := ParseCalendar(tc.text)
		got := fmt.Sprint(err)
		if err == nil {
			if got = c.String(); calendar(t, got) != c || calendar(t, tc.text) != c {
				t.Errorf("%q: %s is not the same calendar", tc.text, got)
			}
		}
		if got != tc.want {
			t.Errorf("%q: %s, want %s", tc.text, got, tc.want)
		}
	}
}

// All callers get the same one, in any order.
func TestCalendarsAreShared(t *testing.T) {
	var got [8]*Calendar
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i], _ = NewCalendar("week", "Asia/Tokyo", 5) })
	}
	wg.Wait()
	for _, c := range got {
		if c == nil || c != got[0] {
			t.Fatalf("%v and %v", c, got[0])
		}
	}
	runtime.GC()
	if c := calendar(t, "week/Asia/Tokyo/5"); c != got[0] {
		t.Error("a calendar that is in use was forgotten")
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = ParseCalendar("week/Asia/Tokyo/5") }); n != 0 {
		t.Errorf("to parse it again takes %v allocations", n)
	}
}

// Calendars without a reference are forgotten, however many are named.
func TestCalendarsAreForgotten(t *testing.T) {
	named := func() int {
		calendars.RLock()
		defer calendars.RUnlock()
		return len(calendars.byText)
	}
	held := calendar(t, "month/Etc/GMT+5/7")
	before := named()
	for offset := -14; offset <= 12; offset++ {
		for anchor := range int64(31) {
			if _, err := NewCalendar("month", fmt.Sprintf("Etc/GMT%+d", offset), anchor+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 1000 {
		if runtime.GC(); named() <= before {
			break
		}
		runtime.Gosched() // to the goroutine that cleans up
	}
	if n := named(); n > before {
		t.Errorf("%d calendars are left, %d of them of before", n, before)
	}
	if c := calendar(t, "month/Etc/GMT+5/7"); c != held {
		t.Error("the one that is in use was forgotten, too")
	}
}

// A late cleanup leaves a newer calendar of the same text alone.
func TestForgetLate(t *testing.T) {
	held := calendar(t, "month/Etc/GMT+5/8")
	dropCalendar("month/Etc/GMT+5/8", weak.Make(new(Calendar)))
	if calendarOf("month/Etc/GMT+5/8") != held {
		t.Error("it was forgotten")
	}
}

// From 1970 to the end of time a window holds its instant, and steps do not fail.
func TestCalendarAtTheExtremes(t *testing.T) {
	for _, unit := range calendarUnits {
		for _, zone := range oddZones {
			c := calendar(t, unit.name+"/"+zone)
			for _, now := range []int64{0, 1, math.MaxInt64 - 1, math.MaxInt64} {
				start, seconds := c.window(now)
				if start > now || seconds <= 0 || (now-start)/1e9 >= seconds || seconds > 367*24*3600 {
					t.Errorf("%v at %d: from %d for %d s", c, now, start, seconds)
				}
				l := &Limit{Algorithm: FixedWindow, Limit: 5, Calendar: c}
				s, d := Step(l, State{}, now, 5)
				if _, again := Step(l, s, now, 1); !d.Allowed || again.Allowed || again.RetryAt != addInstant(start, seconds*1e9) {
					t.Errorf("%v at %d: %+v, then %+v", c, now, d, again)
				}
				if _, d = Step(l, Return(l, s, now, d.At, 5), now, 5); !d.Allowed {
					t.Errorf("%v at %d: returned, and yet %+v", c, now, d)
				}
			}
		}
	}
}

func TestLength(t *testing.T) {
	for _, tc := range []struct {
		limit Limit
		want  time.Duration
	}{
		{Limit{Window: 7e9}, 7 * time.Second},
		{Limit{Calendar: calendar(t, "minute")}, time.Minute},
		{Limit{Calendar: calendar(t, "month/Europe/Paris/31")}, 30 * day},
		{Limit{Calendar: calendar(t, "year")}, 365 * day},
	} {
		if got := tc.limit.Length(); got != int64(tc.want) {
			t.Errorf("%+v: %v, want %v", tc.limit, time.Duration(got), tc.want)
		}
	}
}

// What happens once per window and counter.
func BenchmarkCalendarWindow(b *testing.B) {
	for _, text := range []string{"hour/Europe/Paris", "day/UTC", "month/Europe/Paris/15"} {
		b.Run(text, func(b *testing.B) {
			c, now := calendar(b, text), time.Now().UnixNano()
			b.ReportAllocs()
			for b.Loop() {
				now += int64(time.Minute)
				c.window(now)
			}
		})
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := ParseCalendar("month/Europe/Paris/15"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
