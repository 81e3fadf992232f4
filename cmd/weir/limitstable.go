package main

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

func writeLimits(out *strings.Builder, limits []*weirv1.LimitStatus) {
	table := newTable(out, "RULE", "LIMIT", "PER", "ALGORITHM", "LEFT", "RESETS", "NEXT", "OWNER")
	for _, l := range limits {
		table.row(l.GetRuleId(), fmt.Sprintf("%d per %s", l.GetLimit(), limitWindow(l)), orDash(strings.Join(l.GetPer(), ", ")), l.GetAlgorithm(),
			formatLeft(l), formatResetTime(l), formatNext(l), orDash(l.GetOwner()))
	}
	table.flush()
}

func writeOmitted(out *strings.Builder, n uint32, what string) {
	if n > 0 {
		fmt.Fprintf(out, "and %d more %s\n", n, what)
	}
}

func limitWindow(l *weirv1.LimitStatus) string {
	if l.GetCalendar() != "" {
		return calendarName(l.GetCalendar())
	}
	return per(l.GetWindow().AsDuration())
}

// calendarName turns "month/Europe/Paris/15" into "month (Europe/Paris/15)".
func calendarName(calendar string) string {
	unit, rest, _ := strings.Cut(calendar, "/")
	return fmt.Sprintf("%s (%s)", unit, rest)
}

func formatLeft(l *weirv1.LimitStatus) string {
	if l.GetResetAfter() == nil {
		return "unknown" // its owner does not answer
	}
	return fmt.Sprint(l.GetRemainingTokens())
}

func formatResetTime(l *weirv1.LimitStatus) string {
	if after := l.GetResetAfter().AsDuration(); after > 0 {
		return "in " + short(after)
	}
	return "-"
}

// formatNext says when the request would have room.
func formatNext(l *weirv1.LimitStatus) string {
	next := "never"
	switch {
	case l.GetDelay() != nil:
		next = "after a delay of " + short(l.GetDelay().AsDuration())
	case l.GetAllowed():
		next = "now"
	case l.GetRetryAfter() != nil:
		next = "in " + short(l.GetRetryAfter().AsDuration())
	}
	if l.GetOverLimit() {
		next += ", above the limit"
	}
	if l.GetShadow() {
		next += " (not enforced)"
	}
	return next
}
