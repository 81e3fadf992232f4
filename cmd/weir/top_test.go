package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// A list that has more lines than the terminal is cut, so that the next one can be written over it.
func TestFitRows(t *testing.T) {
	text := ""
	for i := range 10 {
		text += fmt.Sprintf("line %d\n", i)
	}
	for _, c := range []struct {
		rows int
		want string
	}{
		{0, text}, // not known
		{11, text},
		{10, "line 0\nline 1\nline 2\nline 3\nline 4\nline 5\nline 6\nline 7\n2 more lines: the terminal is too low\n"},
		{4, "line 0\nline 1\n8 more lines: the terminal is too low\n"},
		{2, "10 more lines: the terminal is too low\n"},
		{1, "10 more lines: the terminal is too low\n"},
	} {
		got := fitRows(text, c.rows)
		if got != c.want || c.rows > 1 && strings.Count(got, "\n") >= c.rows {
			t.Errorf("%d rows: %q", c.rows, got)
		}
	}
}

func TestTopRefusesTimeouts(t *testing.T) {
	if _, problems, code := weirOf(t, "", "top", "--timeout", "0"); code != 2 || !strings.Contains(problems, "--timeout: 0s is not above 0") {
		t.Errorf("%d: %s", code, problems)
	}
}

func TestNoTerminals(t *testing.T) {
	device, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if rows, ok := terminalRows(device); ok {
		t.Errorf("%s is a terminal of %d rows", os.DevNull, rows)
	}
	if rows, ok := terminalRows(new(strings.Builder)); ok {
		t.Errorf("a text is a terminal of %d rows", rows)
	}
}
