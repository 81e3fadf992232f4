package main

import (
	"fmt"
	"strings"
	"time"
)

// per names a window: "minute", "90s".
func per(window time.Duration) string {
	names := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day"}
	if name := names[window]; name != "" {
		return name
	}
	return trim(window)
}

const day = 24 * time.Hour

// short rounds up, as a wait that is too short ends in a denial: to milliseconds below ten seconds, to
// minutes above a day, to seconds between.
func short(d time.Duration) string {
	unit := time.Second
	switch {
	case d < 10*time.Second:
		unit = time.Millisecond
	case d > day:
		unit = time.Minute
	}
	return trim((d + unit - 1) / unit * unit)
}

// trim writes "1m" where Duration.String has "1m0s", and "2d" for "48h0m0s".
func trim(d time.Duration) string {
	days := ""
	if d >= day {
		days = fmt.Sprintf("%dd", d/day)
		if d %= day; d == 0 {
			return days
		}
	}
	text := days + d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
