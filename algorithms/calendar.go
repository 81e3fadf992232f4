package algorithms

import (
	"fmt"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // for machines that have no time zones of their own
	"weak"
)

// Calendar names windows that follow the calendar of a time zone, such as the
// months that begin on the 15th in Europe/Paris. It is read-only; equal ones are
// the same pointer.
//
// A calendar lives as long as it is referenced, such as by the rules in force, so that callers who may name
// calendars cannot fill the memory with them.
type Calendar struct {
	text   string
	unit   *calendarUnit
	zone   *time.Location
	anchor int64 // 1 to unit.anchors, 0 if that is 0
}

// calendarUnit is one kind of window. One of seconds, days and months is not 0.
type calendarUnit struct {
	name    string
	usual   time.Duration // what people would say that it lasts
	seconds int64
	days    int64
	months  int64
	anchors int64 // the highest anchor; the lowest is 1, and the default
}

const day = 24 * time.Hour

var calendarUnits = []calendarUnit{
	{name: "minute", usual: time.Minute, seconds: 60},
	{name: "hour", usual: time.Hour, seconds: 3600},
	{name: "day", usual: day, days: 1},
	{name: "week", usual: 7 * day, days: 7, anchors: 7},
	{name: "month", usual: 30 * day, months: 1, anchors: 31},
	{name: "quarter", usual: 91 * day, months: 3, anchors: 12},
	{name: "year", usual: 365 * day, months: 12, anchors: 12},
}

// calendars finds every Calendar by its text, and holds none.
var calendars = struct {
	sync.RWMutex
	byText map[string]weak.Pointer[Calendar] // guarded by the mutex; those gone are removed soon
}{byText: make(map[string]weak.Pointer[Calendar])}

// NewCalendar returns the calendar of a unit (minute, hour, day, week, month,
// quarter or year) in an IANA time zone, UTC if it is empty. Its anchor says
// where windows begin, and 0 is 1: a week on an ISO weekday (1 is Monday, 7 is
// Sunday), a month on a day (or its last one, if it has no such day), a quarter
// or year on the first of a month. Other units have none.
//
// The zones are those of the machine, or else of the Go release. NewCalendar may
// be called concurrently.
func NewCalendar(unit, zone string, anchor int64) (*Calendar, error) {
	u := slices.IndexFunc(calendarUnits, func(u calendarUnit) bool { return u.name == unit })
	if u < 0 {
		return nil, fmt.Errorf("calendar: %q is not one of %v", unit, CalendarUnits())
	}
	c := &Calendar{unit: &calendarUnits[u], anchor: anchor}
	switch {
	case anchor != 0 && c.unit.anchors == 0:
		return nil, fmt.Errorf("anchor: %d is not for a %s, which has none", anchor, unit)
	case anchor < 0 || anchor > c.unit.anchors:
		return nil, fmt.Errorf("anchor: %d is not between 1 and %d", anchor, c.unit.anchors)
	}
	location, err := time.LoadLocation(zone)
	if err != nil || !portable(zone) {
		return nil, fmt.Errorf("timezone: %q is not an IANA time zone such as Europe/Paris", zone)
	}
	c.zone = location
	c.normalize()
	return c.intern(), nil
}

// ParseCalendar is the inverse of String. For the text of a calendar that there is
// already it does not allocate. It may be called concurrently.
func ParseCalendar(text string) (*Calendar, error) {
	if c := calendarOf(text); c != nil {
		return c, nil
	}
	unit, zone, _ := strings.Cut(text, "/")
	var anchor int64
	if slash := strings.LastIndexByte(zone, '/'); slash >= 0 {
		if n, err := strconv.ParseInt(zone[slash+1:], 10, 64); err == nil {
			zone, anchor = zone[:slash], n
		}
	}
	return NewCalendar(unit, zone, anchor)
}

// String returns what ParseCalendar reads: unit, zone, and the anchor if it is
// not the default one, such as "month/Europe/Paris/15".
func (c *Calendar) String() string { return c.text }

// CalendarUnits lists the names of the units that NewCalendar accepts.
func CalendarUnits() (all []string) {
	for _, u := range calendarUnits {
		all = append(all, u.name)
	}
	return all
}

// portable reports whether a zone that this machine knows means the same on
// every other one, and is written in the only way.
func portable(zone string) bool {
	return (zone == "" || zone == path.Clean(zone)) && zone != "Local" && !strings.HasPrefix(zone, "posix/") && !strings.HasPrefix(zone, "right/")
}

// normalize gives calendars that mean the same the same text.
func (c *Calendar) normalize() {
	if c.unit.anchors > 0 {
		c.anchor = max(1, c.anchor)
	}
	if c.unit.months > 1 { // quarters that begin in April begin in January, too
		c.anchor = (c.anchor-1)%c.unit.months + 1
	}
	if c.text = c.unit.name + "/" + c.zone.String(); c.anchor > 1 {
		c.text += "/" + strconv.FormatInt(c.anchor, 10)
	}
}

// calendarOf returns the calendar of that text, nil if there is none.
func calendarOf(text string) *Calendar {
	calendars.RLock()
	defer calendars.RUnlock()
	return calendars.byText[text].Value()
}

// intern returns the calendar that has c's text, which is c if there was none.
func (c *Calendar) intern() *Calendar {
	calendars.Lock()
	defer calendars.Unlock()
	if known := calendars.byText[c.text].Value(); known != nil {
		return known
	}
	w := weak.Make(c)
	calendars.byText[c.text] = w
	runtime.AddCleanup(c, func(text string) { dropCalendar(text, w) }, c.text)
	return c
}

// dropCalendar removes a calendar that is gone, unless another one has its text already.
func dropCalendar(text string, w weak.Pointer[Calendar]) {
	calendars.Lock()
	defer calendars.Unlock()
	if calendars.byText[text] == w {
		delete(calendars.byText, text)
	}
}
