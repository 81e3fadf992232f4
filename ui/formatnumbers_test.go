package ui

import (
	"testing"
	"time"
)

func TestFormats(t *testing.T) {
	for want, got := range map[string]string{
		"0":           formatRate(0),
		"<0.1":        formatRate(0.01),
		"2":           formatRate(2),
		"9.9":         formatRate(9.9),
		"1\u202f234":  formatRate(1234.4),
		"12\u202f345": formatCount(12345),
		"-100":        formatCount(-100),
		"1.5 KiB":     formatBytes(1536),
		"512 B":       formatBytes(512),
		"1 GiB":       formatBytes(1 << 30),
		"–":           formatTook(0),
		"156 µs":      formatTook(156 * time.Microsecond),
		"1.42 ms":     formatTook(1420 * time.Microsecond),
		"33.3 %":      formatPercent(1, 3),
		"just now":    formatAgo(time.Second),
		"59 min ago":  formatAgo(59*time.Minute + 59*time.Second),
		"47 h ago":    formatAgo(47 * time.Hour),
		"3 days ago":  formatAgo(80 * time.Hour),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
