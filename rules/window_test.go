package rules

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlimit/weir/algorithms"
)

func TestParseDuration(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct {
		text string
		want time.Duration
		err  error
	}{
		{"10ms", 10 * time.Millisecond, nil},
		{"10000us", 10 * time.Millisecond, nil},
		{"10000µs", 10 * time.Millisecond, nil},
		{"10000000ns", 10 * time.Millisecond, nil},
		{"1s", time.Second, nil},
		{"60s", time.Minute, nil},
		{"1h30m", 90 * time.Minute, nil},
		{"1.5h", 90 * time.Minute, nil},
		{"0.5d", 12 * time.Hour, nil},
		{"1d", day, nil},
		{"1d12h", 36 * time.Hour, nil},
		{"1w", 7 * day, nil},
		{"2w3d", 17 * day, nil},
		{"366d", 366 * day, nil},
		{"366d1ns", 0, rangeError{algorithms.MinWindow}},
		{"300d300d", 0, rangeError{algorithms.MinWindow}},
		{"53w", 0, rangeError{algorithms.MinWindow}},
		{"9ms", 0, rangeError{algorithms.MinWindow}},
		{"0s", 0, rangeError{algorithms.MinWindow}},
		{"-1h", 0, rangeError{algorithms.MinWindow}},
		{"99999999999999999999h", 0, rangeError{algorithms.MinWindow}},
		{"99999999999999999999d", 0, rangeError{algorithms.MinWindow}},
		{"9999999999999w", 0, rangeError{algorithms.MinWindow}},
		{"30501w", 0, rangeError{algorithms.MinWindow}}, // comes out as 3 days in 64 bits
		{"213504d", 0, rangeError{algorithms.MinWindow}},
		{"9223372036854775807ns9223372036854775807ns", 0, rangeError{algorithms.MinWindow}},
		{"9999999999999w1", 0, errNotDuration},
		{"", 0, errNotDuration},
		{"-", 0, errNotDuration},
		{"5", 0, errNotDuration},
		{"s", 0, errNotDuration},
		{"5 s", 0, errNotDuration},
		{"+5s", 0, errNotDuration},
		{"1y", 0, errNotDuration},
		{"1S", 0, errNotDuration},
		{"1..5h", 0, errNotDuration},
		{".5h", 0, errNotDuration},
		{"5.h", 0, errNotDuration},
		{"1.5.5h", 0, errNotDuration},
		{"1e3s", 0, errNotDuration},
		{"0x10s", 0, errNotDuration},
		{"1h-1m", 0, errNotDuration},
		{"1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s1s", 0, errNotDuration},
	} {
		if got, err := parseDuration(c.text, algorithms.MinWindow); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("parseDuration(%q) = %v, %v, want %v, %v", c.text, got, err, c.want, c.err)
		}
	}
}

func TestFormatWindow(t *testing.T) {
	for _, c := range []struct {
		window time.Duration
		want   string
	}{
		{algorithms.MinWindow, "10ms"},
		{algorithms.MaxWindow, "366d"},
		{10 * time.Second, "10s"},
		{time.Minute, "1m"},
		{70 * time.Second, "1m10s"},
		{10 * time.Hour, "10h"},
		{25 * time.Hour, "1d1h"},
		{time.Hour + time.Second, "1h0m1s"},
	} {
		if got := formatWindow(c.window); got != c.want {
			t.Errorf("formatWindow(%d) = %q, want %q", c.window, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		w := time.Duration(rapid.Int64Range(int64(algorithms.MinWindow), int64(algorithms.MaxWindow)).Draw(t, "window"))
		if back, err := parseDuration(formatWindow(w), 0); back != w || err != nil {
			t.Fatalf("%v reads as %q and back as %v, %v", w, formatWindow(w), back, err)
		}
	})
}
