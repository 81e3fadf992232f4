package dev

import "testing"

func TestParseRate(t *testing.T) {
	for text, want := range map[string]int{"200/s": 200, "1": 1, "20000/s": 20_000, "0": 0, "20001/s": 0, "5/m": 0, "": 0, "-1/s": 0} {
		if got, err := ParseRate(text); got != want || (err == nil) != (want > 0) {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}
