package rules

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

var (
	errNotDuration = errors.New("is not a duration; write a number with a unit, such as 10s, 5m, 1h, 1d")
	errTooLong     = errors.New("is too long")
)

// units are those of Go and two more. A d is always 24 hours.
var units = map[string]time.Duration{
	"ns": time.Nanosecond, "us": time.Microsecond, "µs": time.Microsecond, "ms": time.Millisecond,
	"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

// parseDuration reads one or more numbers with units, such as 1h30m or 1.5d, from
// least to MaxWindow in all. The error continues a sentence that begins with the
// value.
func parseDuration(s string, least time.Duration) (time.Duration, error) {
	if s == "" || len(s) > 64 {
		return 0, errNotDuration
	}
	rest, negative := strings.CutPrefix(s, "-")
	var sum time.Duration
	for first := true; first || rest != ""; first = false {
		var number, unit string
		number, rest = span(rest, true)
		unit, rest = span(rest, false)
		d, err := parsePart(number, unit)
		switch {
		case errors.Is(err, errNotDuration):
			return 0, err
		case err != nil || sum+d > algorithms.MaxWindow:
			// Look at the rest too: nonsense is reported as such, however long.
			d = algorithms.MaxWindow + 1 - sum
		}
		sum += d
	}
	if negative || sum < least || sum > algorithms.MaxWindow {
		return 0, rangeError{least}
	}
	return sum, nil
}

// rangeError is a duration that is not between least and MaxWindow.
type rangeError struct{ least time.Duration }

// Error implements error.
func (e rangeError) Error() string {
	return fmt.Sprintf("is not between %s and %s", formatWindow(e.least), formatWindow(algorithms.MaxWindow))
}

// windowText is how messages call the window of a limit.
func windowText(l algorithms.Limit) string {
	if l.Calendar != nil {
		return l.Calendar.String()
	}
	return formatWindow(time.Duration(l.Window))
}

// parsePart returns number units, at most MaxWindow.
func parsePart(number, unit string) (time.Duration, error) {
	scale, known := units[unit]
	whole, fraction, point := strings.Cut(number, ".")
	if !known || whole == "" || (point && (fraction == "" || strings.Contains(fraction, "."))) {
		return 0, errNotDuration
	}
	factor := time.Duration(1)
	if scale > time.Hour { // Go knows no longer unit
		factor, unit = scale/time.Hour, "h"
	}
	d, err := time.ParseDuration(number + unit)
	if err != nil || d > algorithms.MaxWindow/factor {
		return 0, errTooLong // number and unit are fine
	}
	return d * factor, nil
}

// span cuts s where digits and points end, or begin.
func span(s string, digits bool) (head, tail string) {
	i := 0
	for i < len(s) && (s[i] == '.' || s[i] >= '0' && s[i] <= '9') == digits {
		i++
	}
	return s[:i], s[i:]
}

// formatWindow is the shortest text that parseDuration reads as w.
func formatWindow(w time.Duration) string {
	const day = 24 * time.Hour
	var text string
	if days := w / day; days > 0 {
		text = fmt.Sprintf("%dd", days)
		if w %= day; w == 0 {
			return text
		}
	}
	text += w.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
