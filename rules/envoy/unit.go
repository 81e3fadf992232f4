package envoy

import (
	"fmt"
	"strings"
	"time"
)

// Unit is the unit of time of a limit of envoyproxy/ratelimit. The numbers are those of
// Envoy's API; 0 is none.
type Unit uint8

// Second is the first of the units.
const Second Unit = 1

var unitNames = [...]string{1: "second", "minute", "hour", "day", "month", "year", "week"}

var unitWindows = [...]time.Duration{
	0, time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour, 7 * 24 * time.Hour,
}

// String returns the name that files use, such as "minute".
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Window returns how long the unit is, in nanoseconds. A month has 30 days and a year 365,
// as there; no calendar is asked. It is 0 for what is no unit.
func (u Unit) Window() int64 {
	if int(u) < len(unitWindows) {
		return int64(unitWindows[u])
	}
	return 0
}

// ParseUnit reads the name of a unit, in any case. It is 0 if there is none of it.
func ParseUnit(name string) Unit {
	for u := Second; int(u) < len(unitNames); u++ {
		if strings.EqualFold(name, unitNames[u]) {
			return u
		}
	}
	return 0
}
