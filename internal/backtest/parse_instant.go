package backtest

import "time"

const (
	second = int64(time.Second)
	minute = 60 * second
	day    = 86400 * second

	latestYear = 2261 // of instants in nanoseconds
)

// digits reads n decimal digits.
func digits(b []byte) (v int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + int64(c-'0')
	}
	return v, true
}

// daysOf returns the days since 1970-01-01, by H. Hinnant's formula for the Gregorian calendar.
func daysOf(year, month, dom int64) int64 {
	if month <= 2 {
		year--
	}
	era := year / 400
	yoe := year - era*400
	shifted := month - 3
	if month <= 2 {
		shifted = month + 9
	}
	doy := (153*shifted+2)/5 + dom - 1
	return era*146097 + yoe*365 + yoe/4 - yoe/100 + doy - 719468
}

// instantOf puts an instant in UTC together. Fields that no date or time has make it false.
func instantOf(year, month, dom, hour, minutes, seconds int64) (int64, bool) {
	if year < 1970 || year > latestYear || month < 1 || month > 12 || dom < 1 || dom > 31 || hour > 23 || minutes > 59 || seconds > 60 {
		return 0, false
	}
	return daysOf(year, month, dom)*day + ((hour*60+minutes)*60+seconds)*second, true
}

// parseInstant reads an instant as Unix nanoseconds: RFC 3339, or a number of seconds, which may have a fraction. Of
// numbers that are too large for seconds, it takes milliseconds, microseconds or nanoseconds by their digits.
func parseInstant(b []byte) (int64, bool) {
	if len(b) >= 20 && b[4] == '-' {
		return parseRFC3339(b)
	}
	return parseUnix(b)
}

func parseRFC3339(b []byte) (int64, bool) {
	if len(b) < 20 || b[4] != '-' || b[7] != '-' || b[10] != 'T' && b[10] != ' ' && b[10] != 't' || b[13] != ':' || b[16] != ':' {
		return 0, false
	}
	year, a := digits(b[0:4])
	month, c := digits(b[5:7])
	dom, d := digits(b[8:10])
	hour, e := digits(b[11:13])
	minutes, f := digits(b[14:16])
	seconds, g := digits(b[17:19])
	if !a || !c || !d || !e || !f || !g {
		return 0, false
	}
	t, ok := instantOf(year, month, dom, hour, minutes, seconds)
	if !ok {
		return 0, false
	}
	b = b[19:]
	if b[0] == '.' || b[0] == ',' {
		n := 1
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		t += fraction(b[1:n])
		b = b[n:]
	}
	if len(b) == 1 && (b[0] == 'Z' || b[0] == 'z') {
		return t, true
	}
	off, ok := zone(b)
	return t - off, ok
}

// fraction returns what the digits behind a point are of a second, in nanoseconds.
func fraction(b []byte) (v int64) {
	unit := second
	for _, c := range b {
		unit /= 10
		v += unit * int64(c-'0')
	}
	return v
}

// zone reads +hh:mm or +hhmm.
func zone(b []byte) (int64, bool) {
	if len(b) < 5 || b[0] != '+' && b[0] != '-' {
		return 0, false
	}
	m := b[3:]
	if m[0] == ':' {
		m = m[1:]
	}
	if len(m) != 2 {
		return 0, false
	}
	hours, a := digits(b[1:3])
	minutes, c := digits(m)
	off := (hours*60 + minutes) * minute
	if b[0] == '-' {
		off = -off
	}
	return off, a && c && hours < 24 && minutes < 60
}

func parseUnix(b []byte) (int64, bool) {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	if n == 0 || n > 19 {
		return 0, false
	}
	v, _ := digits(b[:n])
	if v < 0 {
		return 0, false
	}
	part := int64(0)
	if n < len(b) {
		if b[n] != '.' || n > 11 {
			return 0, false
		}
		for _, c := range b[n+1:] {
			if c < '0' || c > '9' {
				return 0, false
			}
		}
		part = fraction(b[n+1:])
	}
	switch {
	case n <= 11:
		if v > 9_000_000_000 {
			return 0, false
		}
		return v*second + part, true
	case n <= 14:
		if v > 9_000_000_000_000 {
			return 0, false
		}
		return v * int64(time.Millisecond), true
	case n <= 17:
		if v > 9_000_000_000_000_000 {
			return 0, false
		}
		return v * int64(time.Microsecond), true
	}
	return v, true
}

// commonLog reads instants such as 10/Oct/2000:13:55:36 -0700. It keeps the last one: most lines share their minute with
// the line before.
type commonLog struct {
	minute [17]byte // such as 10/Oct/2000:13:55
	zone   [5]byte
	base   int64 // the instant of the minute in that zone
	known  bool
}

func (c *commonLog) parse(b []byte) (int64, bool) {
	if len(b) != 26 || b[17] != ':' || b[20] != ' ' {
		return 0, false
	}
	seconds, ok := digits(b[18:20])
	if !ok || seconds > 60 {
		return 0, false
	}
	if !c.known || c.minute != [17]byte(b) || c.zone != [5]byte(b[21:]) {
		base, ok := minuteOf(b)
		off, zoned := zone(b[21:])
		if !ok || !zoned {
			return 0, false
		}
		c.minute, c.zone, c.base, c.known = [17]byte(b), [5]byte(b[21:]), base-off, true
	}
	return c.base + seconds*second, true
}

func minuteOf(b []byte) (int64, bool) {
	if b[2] != '/' || b[6] != '/' || b[11] != ':' || b[14] != ':' {
		return 0, false
	}
	dom, a := digits(b[0:2])
	year, c := digits(b[7:11])
	hour, d := digits(b[12:14])
	minutes, e := digits(b[15:17])
	if !a || !c || !d || !e {
		return 0, false
	}
	return instantOf(year, monthOf(b[3:6]), dom, hour, minutes, 0)
}

func monthOf(b []byte) int64 {
	switch string(b) {
	case "Jan":
		return 1
	case "Feb":
		return 2
	case "Mar":
		return 3
	case "Apr":
		return 4
	case "May":
		return 5
	case "Jun":
		return 6
	case "Jul":
		return 7
	case "Aug":
		return 8
	case "Sep":
		return 9
	case "Oct":
		return 10
	case "Nov":
		return 11
	case "Dec":
		return 12
	}
	return 0
}
