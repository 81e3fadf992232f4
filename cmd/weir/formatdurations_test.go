package main

import (
	"testing"
	"time"
)

func TestDurations(t *testing.T) {
	tests := []struct {
		d          time.Duration
		short, per string
	}{
		{time.Nanosecond, "1ms", "1ns"},
		{time.Second, "1s", "second"},
		{9_999_999_999, "10s", "9.999999999s"},
		{10_000_000_001, "11s", "10.000000001s"},
		{time.Minute, "1m", "minute"},
		{10 * time.Minute, "10m", "10m"},
		{time.Hour, "1h", "hour"},
		{time.Hour + time.Second, "1h0m1s", "1h0m1s"},
		{20*time.Hour + 10*time.Minute, "20h10m", "20h10m"},
		{24 * time.Hour, "1d", "day"},
	}
	for _, test := range tests {
		if got := short(test.d); got != test.short {
			t.Errorf("short %d: got %s, want %s", test.d, got, test.short)
		}
		if got := per(test.d); got != test.per {
			t.Errorf("per %d: got %s, want %s", test.d, got, test.per)
		}
	}
}
