package ui

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
)

// functions are what templates call.
var functions = template.FuncMap{
	"bytes": formatBytes, "count": countOf, "rate": formatRate, "took": formatTook, "percent": formatPercent,
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
	"stamp": func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"ago":   func(now, t time.Time) string { return formatAgo(now.Sub(t)) },
	"join":  strings.Join, "change": changeWord,
}

// formatBytes returns a size in units of 1024.
func formatBytes(n uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= unit.size {
			return short(float64(n)/float64(unit.size)) + " " + unit.name
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}

// countOf is formatCount for templates, of any kind of integer.
func countOf(n any) string {
	text := fmt.Sprint(n)
	if i, err := strconv.ParseInt(text, 10, 64); err == nil {
		return formatCount(i)
	}
	return text
}

// formatCount returns a number with its thousands apart.
func formatCount[T ~int | ~uint32 | ~uint64 | ~int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// formatRate returns a number per second.
func formatRate(perSecond float64) string {
	switch {
	case perSecond <= 0:
		return "0"
	case perSecond < 0.1:
		return "<0.1"
	case perSecond < 10:
		return strings.TrimSuffix(strconv.FormatFloat(perSecond, 'f', 1, 64), ".0")
	}
	return formatCount(int64(math.Round(perSecond)))
}

// formatTook returns how long something took, with a unit; a dash for nothing.
func formatTook(d time.Duration) string {
	switch {
	case d <= 0:
		return "–"
	case d < time.Millisecond:
		return short(float64(d)/1e3) + " µs"
	case d < time.Second:
		return short(float64(d)/1e6) + " ms"
	}
	return short(d.Seconds()) + " s"
}

// formatSpan returns a duration as rules have it, such as 1h or 20m10s, without more digits than people want to know.
func formatSpan(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		d = d.Round(time.Second)
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	default:
		d = d.Round(time.Millisecond)
	}
	text := d.String()
	if d >= time.Minute {
		text = strings.TrimSuffix(text, "0s")
		if !strings.HasSuffix(text, "m") {
			text = d.String()
		}
	}
	if d >= time.Hour && strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func formatPercent(part, whole uint32) string {
	if whole == 0 {
		return "–"
	}
	return short(100*float64(part)/float64(whole)) + " %"
}

// formatAgo says how long ago something was.
func formatAgo(d time.Duration) string {
	switch {
	case d < 5*time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min ago", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", d/time.Hour)
	}
	return fmt.Sprintf("%d days ago", d/(24*time.Hour))
}

// short returns a number with at most three digits where it has a fraction.
func short(x float64) string {
	digits := 2
	switch {
	case x >= 100:
		digits = 0
	case x >= 10:
		digits = 1
	}
	text := strconv.FormatFloat(x, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
