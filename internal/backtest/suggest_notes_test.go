package backtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A decision log of denials alone says so.
func TestSuggestOfDenials(t *testing.T) {
	const note = "No check of the log is allowed, so it does not say what callers need."
	for allowed, want := range map[string]bool{"false false false": true, "false true false": false} {
		var log []byte
		for i, v := range strings.Fields(allowed) {
			log = fmt.Appendf(log, `{"time":"2026-03-02T09:%02d:00Z","domain":"default","keys":"clear","source":"owner","allowed":%s,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"a"}]}]}`+"\n", i, v)
			log = fmt.Appendf(log, `{"time":"2026-03-02T09:%02d:00Z","domain":"default","keys":"clear","source":"owner","allowed":true,"peek":true,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"a"}]}]}`+"\n", i)
		}
		_, found := suggestionOf(t, SuggestConfig{Config: Config{Format: Decisions}}, log)
		if got := strings.Contains(strings.Join(found.Notes, " "), note); got != want {
			t.Errorf("allowed: %s: %q", allowed, found.Notes)
		}
	}
	if _, found := suggestionOf(t, SuggestConfig{}, apiLog()); len(found.Notes) > 0 {
		t.Errorf("%q", found.Notes)
	}
}

// A file of rules says which lines it is made of, and what was wrong with the others.
func TestSuggestNotesOfTheLog(t *testing.T) {
	log := apiLog()
	for _, c := range []struct {
		name string
		log  []byte
		read int64
		note string // empty: none
		yaml []string
	}{
		{"good", log, 4871, "", []string{"from 4871 lines", `Lines without "user": 1800.`}},
		{"a few broken", append([]byte("x\nx\n"), log...), 4871, "", []string{"from 4871 lines", "Left out: 2 lines, broken."}},
		{"broken", append(bytes.Repeat([]byte("x\n"), 100), log...), 4871, "Only 4871 of 4971 lines could be read: the limits are those of these lines.",
			[]string{"from 4871 lines", "Left out: 100 lines, broken."}},
		{"two servers", slices.Concat(log, log), 9742, "Of 9742 lines, 4870 are earlier than one before, and count as of its instant, so limits may be far too high. Merge the logs of several servers by time.",
			[]string{"Lines earlier than one before: 4870, by 3h59m4s at most."}},
	} {
		_, found := suggestionOf(t, SuggestConfig{Touch: 1, Headroom: 20}, c.log)
		if got := strings.Join(found.Notes, "|"); found.Read() != c.read || got != c.note {
			t.Errorf("%s: %d lines, %q", c.name, found.Read(), got)
		}
		text, err := found.YAML()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range append(c.yaml, c.note) {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, text)
			}
		}
	}
}
