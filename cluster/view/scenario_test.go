package view

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the scenarios in testdata")

// A scenario is a text file. Lines that begin with > are what comes out, all others are commands:
//
//	wants P: IDS     partition P should have the first of these nodes that stays as owner, and the second as standby
//	cluster LIVES    the first view
//	ready, leaving, left, gone LIVES   what the writer of views sees of nodes; a@2 is the second life of a
//	deaf, hears LIVES  lives that adopt and report nothing from now on, and those that do again
//	silent, answers LIVES  lives that the writer of views does not reach from now on, and those that it does again
//	apart, together LIFE LIFE   two lives that do not reach each other from now on, and two that do again
//	farewell LIVES   lives that have said farewell, and adopt and report nothing from now on; what is seen of them stays
//	overdue          half of the members from before was waited for in vain, in the next view
//	adopt [LIVES]    these lives, or all, adopt the newest view; owners settle, standbys and learners are fed
//	next             one view is written, if there is anything to write
//	run              all adopt, one view is written, and so on until there is nothing to write
const maxRun = 30

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios: %v", len(files), err)
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(text))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("it is now (rewrite it with -update, then read the difference):\n%s", got)
			}
		})
	}
}

// play runs the commands of a scenario, and returns it with what comes out now.
func play(text string) (string, error) {
	w := newWorld(strings.Count(text, "wants "))
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		b.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		out, err := w.command(strings.Fields(line))
		if err != nil {
			return "", fmt.Errorf("line %d: %q: %w", i+1, line, err)
		}
		for out := range strings.Lines(out) {
			b.WriteString("> " + out)
		}
	}
	return b.String(), nil
}

func (w *world) command(words []string) (out string, err error) {
	var lives []Life
	for _, s := range words[1:] {
		lives = append(lives, lifeOf(s))
	}
	states := map[string]State{"ready": Ready, "leaving": Leaving, "left": Left, "gone": Gone}
	state, sees := states[words[0]]
	switch {
	case sees:
		for _, l := range lives {
			w.see(l, state)
		}
	case words[0] == "wants":
		var p int
		if _, err := fmt.Sscanf(words[1], "%d:", &p); err != nil {
			return "", fmt.Errorf("no such partition: %w", err)
		}
		w.prefer[p] = words[2:]
	case words[0] == "cluster":
		out = w.found(lives)
	case words[0] == "deaf", words[0] == "hears":
		for _, l := range lives {
			w.deaf[l] = words[0] == "deaf"
		}
	case words[0] == "silent", words[0] == "answers":
		for _, l := range lives {
			w.silent[l] = words[0] == "silent"
		}
	case words[0] == "farewell":
		w.farewells = append(w.farewells, lives...)
	case words[0] == "apart" && len(lives) == 2:
		w.unconnected = append(w.unconnected, Pair(lives))
	case words[0] == "together" && len(lives) == 2:
		w.unconnected = slices.DeleteFunc(w.unconnected, func(p Pair) bool { return p == Pair(lives) })
	case words[0] == "overdue":
		w.overdue = true
	case words[0] == "adopt":
		w.adopt(lives...)
	case words[0] == "next":
		out, _ = w.step()
	case words[0] == "run":
		return w.run()
	default:
		return "", fmt.Errorf("no such command")
	}
	return out, nil
}

func (w *world) found(lives []Life) string {
	for _, l := range lives {
		w.see(l, Ready)
	}
	w.view = &View{Members: w.seen().Nodes} // the plan is for these
	w.view = First(w.seen().Nodes, w.plan())
	return format(w.view, nil, Planned)
}

func (w *world) step() (out string, wrote bool) {
	old := w.view
	v, urgency := w.next()
	w.overdue = false
	if v == nil {
		return "nothing to write\n", false
	}
	if _, err := Marshal(v); err != nil {
		return fmt.Sprintf("%v\n", err), false
	}
	return format(v, old, urgency), true
}

func (w *world) run() (string, error) {
	var b strings.Builder
	for range maxRun {
		w.adopt()
		out, wrote := w.step()
		b.WriteString(out)
		if !wrote {
			return b.String(), nil
		}
	}
	return "", fmt.Errorf("it does not end:\n%s", b.String())
}
