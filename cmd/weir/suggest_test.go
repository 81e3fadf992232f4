package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the page about it shows is what the command prints, of the sample, and the rules that it prints are good.
func TestSuggestSamples(t *testing.T) {
	const samples = "../../docs/samples/"
	page, err := os.ReadFile("../../docs/suggest.md")
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.html")
	out, problems, code := weirOf(t, "", "suggest", "--log", samples+"api.log.gz", "--html", report)
	if code != 0 || problems != "" {
		t.Fatalf("%d: %s", code, problems)
	}
	shown := ""
	for line := range strings.Lines(out) {
		if strings.TrimSpace(line) != "" {
			shown += "    "
		}
		shown += line
	}
	if !strings.Contains(string(page), "\n\n"+shown+"\n") {
		t.Errorf("the page does not show\n%s", shown)
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), "Suggested limits") || !strings.Contains(string(text), "ip=203.0.113.77") {
		t.Errorf("%v: %d bytes of a report", err, len(text))
	}
	yaml, problems, code := weirOf(t, "", "suggest", "--log", samples+"login.log.gz", "--format", "json", "--per", "user,ip", "--per", "ip", "--window", "1m", "--window", "1h", "--yaml")
	if code != 0 || problems != "" || strings.Count(yaml, "enforce: 0") != 2 || !strings.Contains(yaml, "id: per-user-ip") {
		t.Fatalf("%d: %s\n%s", code, problems, yaml)
	}
	if out, problems, code := weirOf(t, yaml, "rules", "lint", "-f", "-"); code != 0 {
		t.Errorf("%d: %s%s in\n%s", code, out, problems, yaml)
	}
	out, _, _ = weirOf(t, "", "suggest", "--log", samples+"api.log.gz", "--touch", "5", "--algorithm", "sliding_window", "--json")
	var found struct {
		Lines int64
		Touch float64 `json:"touch_percent"`
		Rules []struct {
			Limits   []struct{ Limit, Burst, Window, Touched int64 }
			Machines []struct{ Signs []string }
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatal(err)
	}
	if found.Lines != 4871 || found.Touch != 5 || len(found.Rules) != 2 || found.Rules[0].Limits[0].Limit < 5 || found.Rules[0].Limits[0].Burst != 0 || len(found.Rules[1].Machines) != 2 {
		t.Errorf("%+v", found)
	}
}

// Control characters of a log do not reach the terminal.
func TestSuggestStdin(t *testing.T) {
	log := strings.Repeat(`{"ts":1770000000,"user":"\u001b[31mred","user_agent":"\u001b[2Jbot"}`+"\n", 70)
	out, problems, code := weirOf(t, log, "suggest", "--log", "-", "--format", "json")
	if code != 0 || !strings.Contains(out, `user=\x1b[31mred`) || strings.Contains(out, "\x1b") || !strings.Contains(out, "All keys are taken for machines") {
		t.Errorf("%d %s\n%s", code, problems, out)
	}
}

func TestSuggestRefuses(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"", "--log: name at least one file"},
		{"--log -  --html x", "--html: the logs are read twice"},
		{"--log - --json --yaml", "--yaml: --json is given, too"},
		{"--log - --rules ../../docs/samples/api-rules.yaml --per user", "--per: the rules of --rules say themselves"},
		{"--log - --per team", `per: there is no attribute "team"; map a field to it`},
		{"--log - --touch 51", "touch: 51 is not between 0 and 50 percent"},
		{"--log - --keys 0", "--keys: 0 is not between 1000 and 10000000"},
		{"--log - --keys many", `--keys: "many" is not a whole number`},
		{"--log - --window soon", `--window: "soon" is not a duration`},
		{"--log - --window 1us", "window: 1µs is not between 10ms and"},
		{"--log - --algorithm best", `--algorithm: "best" is not sliding_window or token_bucket`},
		{"--log - --algorithm gcra", "algorithm: gcra is not one of sliding_window, token_bucket"},
		{"--log - --rules missing.yaml", "--rules: "},
		{"--log missing.log", "--log: open missing.log: no such file"},
	} {
		if out, problems, code := weirOf(t, "", append([]string{"suggest"}, strings.Fields(c.args)...)...); code != 2 || !strings.Contains(problems, c.want) || out != "" {
			t.Errorf("%s: %d %s", c.args, code, problems)
		}
	}
}
