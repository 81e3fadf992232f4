package backtest

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A decision log of other domains than that of the rules says so.
func TestSuggestOfOtherDomains(t *testing.T) {
	var log []byte
	for i := range 20 {
		for _, domain := range []string{"shop", `a\n\u001b[2J`} {
			log = fmt.Appendf(log, `{"time":"2026-03-02T09:%02d:00Z","domain":"%s","keys":"clear","source":"owner","allowed":true,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"a"}]}]}`+"\n", i, domain)
		}
	}
	const note = `The log has no check of domain default: it has the domains ["shop" "a\n\x1b[2J"]. Name one of them with --domain, or in --rules.`
	_, found := suggestionOf(t, SuggestConfig{Config: Config{Format: Decisions}}, log)
	if r := found.Rules[0]; len(r.Limits) > 0 || !slices.Contains(r.Notes, note) {
		t.Errorf("%q", r.Notes)
	}
	_, found = suggestionOf(t, SuggestConfig{Config: Config{Format: Decisions, Domain: "shop"}}, log)
	if r := found.Rules[0]; len(r.Limits) == 0 || strings.Contains(strings.Join(r.Notes, " "), "domain") {
		t.Errorf("%q", r.Notes)
	}
	var many []byte // are not all named, and it is not known which are missing
	for i := range 20 {
		many = fmt.Appendf(many, `{"time":"2026-03-02T09:%02d:00Z","domain":"%d%s","keys":"clear","source":"owner","allowed":true,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"a"}]}]}`+"\n", i, i, strings.Repeat("x", 1000))
	}
	s, found := suggestionOf(t, SuggestConfig{Config: Config{Format: Decisions}}, many)
	if len(s.domains) != mostDomains || len(s.domains[0]) != mostDomainBytes || strings.Contains(strings.Join(found.Rules[0].Notes, " "), "domain") {
		t.Errorf("%q, %q", s.domains, found.Rules[0].Notes)
	}
}

// Of addresses that come once and people who stay, the people are not touched. Signs that people can have are noted if many
// keys or lines have them.
func TestSuggestForPeopleWhoStay(t *testing.T) {
	begin := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name      string
		once      int
		stay      int
		regularly bool // 70 lines, 1 s apart
		machines  int
		note      string
	}{
		{"two fifths stay", 60, 40, false, 0, "40 keys need far more than half of the others. They are too many to take them for machines, so the limits fit them, too."},
		{"a tenth stays", 90, 10, false, 10, "10 of 100 keys, with 53% of the lines, are taken for machines by their rate or regular gaps alone. People can have these signs, too: look at the list."},
		{"one of 300", 299, 1, false, 1, ""},
		{"one polls", 200, 1, true, 1, "1 of 201 keys, with 26% of the lines, are taken for machines"},
		{"two fifths poll", 60, 40, true, 40, "40 of 100 keys, with 98% of the lines, are taken for machines"},
	} {
		var lines []sampleLine
		add := func(at time.Time, name string, i int) {
			lines = append(lines, sampleLine{at, fmt.Sprintf("{\"time\":%q,\"ip\":\"%s%d\"}\n", at.Format(time.RFC3339Nano), name, i)})
		}
		for i := range c.once {
			add(begin.Add(time.Duration(i)*12*time.Second), "once", i)
		}
		for i := range c.stay {
			n, gap := 10, func(j int) int { return j * (j + 1) / 2 } // gaps grow
			if c.regularly {
				n, gap = 70, func(j int) int { return j }
			}
			for j := range n {
				add(begin.Add(time.Duration(i*60+gap(j))*time.Second), "stays", i)
			}
		}
		_, found := suggestionOf(t, SuggestConfig{Config: Config{Format: JSON}, Per: [][]string{{"ip"}}, Touch: 1, Headroom: 20}, inOrder(lines))
		r := found.Rules[0]
		if notes := strings.Join(r.Notes, "|"); r.MachineKeys != c.machines || c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
			t.Errorf("%s: %d machines, %q", c.name, r.MachineKeys, notes)
		}
		if l := r.Limits[0]; c.machines == 0 && l.Limit+l.Burst < 10 {
			t.Errorf("%s: people are touched by %+v", c.name, l)
		}
	}
}

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
		_, text := readBack(t, found)
		for _, want := range append(c.yaml, c.note) {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, text)
			}
		}
	}
}
