package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// weirOf runs a command line and returns what it prints.
func weirOf(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, problems bytes.Buffer
	a := newApp(nil, &out, &problems)
	a.stdin = strings.NewReader(stdin)
	code = a.run(args)
	return out.String(), problems.String(), code
}

// Text and page name the same share of denials, that of the lines that were decided.
func TestSimulateShares(t *testing.T) {
	dir := t.TempDir()
	log, rules, page := filepath.Join(dir, "log"), filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "page.html")
	for path, text := range map[string]string{
		log:   strings.Repeat(`{"ts":1770000000,"user":"a"}`+"\n", 4) + strings.Repeat("broken\n", 4) + `{"ts":8770000000,"user":"a"}` + "\n" + strings.Repeat(`{"ts":1770000000,"user":"a"}`+"\n", 4),
		rules: "domain: default\nrules: [{id: a, per: [user], limits: [{limit: 6, window: 1m}]}]\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, problems, code := weirOf(t, "", "simulate", "--rules", rules, "--log", log, "--format", "json", "--html", page)
	text, err := os.ReadFile(page)
	if code != 0 || err != nil {
		t.Fatal(code, problems, err)
	}
	if !strings.Contains(out, "denied   2  25.00%") || !strings.Contains(string(text), "2 denied (25.00 % of those that are decided)") {
		t.Errorf("%s\n%s", out, text)
	}
	if want := "skipped  1  lines that are more than a day later than most of the 16 lines after them, the first one at " + log + ":9\n"; !strings.Contains(out, want) {
		t.Errorf("%s lacks %s", out, want)
	}
}

// Text and JSON say what has decided the lines of a decision log, and which of them may be decided in another way.
func TestSimulateDecisions(t *testing.T) {
	line := func(second int, source, more string, allowed bool) string {
		return fmt.Sprintf(`{"time":"2026-03-02T09:00:%02dZ","node":"n","api":"check","domain":"default","keys":"clear","source":%q,"allowed":%t,"descriptors":[{"tokens":1,"entries":[{"key":"user","value":"u"}],`+
			`"limits":[{"rule":"a","index":0,"counter":"00000000000000000000000000000000","source":%q%s}]}]}`+"\n", second, source, allowed, source, more)
	}
	dir := t.TempDir()
	rules, page := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "page.html")
	if err := os.WriteFile(rules, []byte("domain: default\nrules: [{id: a, per: [user], limits: [{limit: 2, window: 1m}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := line(0, "owner", "", true) + line(1, "owner", "", false) + line(2, "owner", `,"leases":true`, true) + line(3, "lent", "", true) + line(4, "fail_open", `,"shares":3`, true)
	out, problems, code := weirOf(t, log, "simulate", "--rules", rules, "--log", "-", "--format", "decisions")
	for _, want := range []string{
		"differ   1  lines that the log decides in another way, source lent\n", "differ   2  lines that the log decides in another way, source owner\n",
		"of them  1  for no reason that the log names", "inexact  2  lines that may be decided in another way than the log says, because tokens of a counter were lent to nodes\n",
	} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d %s: no %q in\n%s", code, problems, want, out)
		}
	}
	out, _, _ = weirOf(t, log, "simulate", "--rules", rules, "--log", "-", "--format", "decisions", "--json", "--html", page)
	var found struct {
		Sources, Differing, Inexact map[string]int64
		Unexplained                 int64
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil || found.Sources["fail_open"] != 1 || found.Sources["owner"] != 3 || found.Inexact["lent"] != 2 || found.Unexplained != 1 {
		t.Errorf("%v: %+v", err, found)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "2 lines may be decided in another way than in the log: lent") {
		t.Errorf("%v: the page has no inexact lines", err)
	}
}

// What the page about it shows is what the command prints, of the samples.
func TestSimulateSamples(t *testing.T) {
	const samples = "../../docs/samples/"
	page, err := os.ReadFile("../../docs/simulate.md")
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(t.TempDir(), "report.html")
	out, problems, code := weirOf(t, "", "simulate", "--rules", samples+"api-rules.yaml", "--log", samples+"api.log.gz", "--html", report)
	if code != 0 || problems != "" {
		t.Fatalf("%d: %s", code, problems)
	}
	shown, _, _ := strings.Cut(out, "\n\nDENIED  OF")
	for line := range strings.Lines(shown) {
		if !strings.Contains(string(page), "    "+line) && strings.TrimSpace(line) != "" {
			t.Errorf("the page lacks the line %q", line)
		}
	}
	if text, err := os.ReadFile(report); err != nil || !strings.Contains(string(text), "203.0.113.77") {
		t.Errorf("%v: %d bytes of a report", err, len(text))
	}
	if info, err := os.Stat(report); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v: %v", err, info.Mode())
	}
	out, _, _ = weirOf(t, "", "simulate", "--rules", samples+"login-rules.yaml", "--against", samples+"api-rules.yaml", "--log", samples+"login.log.gz", "--format", "json", "--json")
	var result struct {
		Lines, Allowed, Denied int64
		Rules                  []struct {
			Rule                   string
			Lines, Allowed, Denied int64
		}
		Against struct {
			Denied       int64
			NewlyDenied  int64 `json:"newly_denied"`
			NewlyAllowed int64 `json:"newly_allowed"`
		}
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		t.Fatal(err)
	}
	if result.Lines != 3299 || result.Allowed+result.Denied != 3299 || result.Denied != 2721 || result.Denied-result.Against.NewlyDenied+result.Against.NewlyAllowed != result.Against.Denied {
		t.Errorf("%+v", result)
	}
	for _, r := range result.Rules {
		if r.Lines != r.Allowed+r.Denied {
			t.Errorf("%+v", r)
		}
	}
}

// Standard input is a log, too; control characters of a log do not reach the terminal.
func TestSimulateStdin(t *testing.T) {
	log := strings.Repeat(`{"ts":1770000000,"user":"\u001b[31mred"}`+"\n", 70) + "broken\n"
	out, problems, code := weirOf(t, log, "simulate", "--rules", "../../docs/samples/api-rules.yaml", "--log", "-", "--format", "json")
	if code != 0 || !strings.Contains(out, `10      per-user  user=\x1b[31mred`) || strings.Contains(out, "\x1b") || !strings.Contains(out, "the first one at stdin:71") {
		t.Errorf("%d %s\n%s", code, problems, out)
	}
}

func TestSimulateRefuses(t *testing.T) {
	const rules = "../../docs/samples/api-rules.yaml"
	descriptors := filepath.Join(t.TempDir(), "envoy.yaml")
	if err := os.WriteFile(descriptors, []byte("domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 5}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"--log x", "--rules: name a file or a directory"},
		{"--rules " + rules, "--log: name at least one file"},
		{"--rules " + rules + " --log missing.log", "--log: open missing.log: no such file"},
		{"--rules missing.yaml --log -", "--rules: "},
		{"--rules " + rules + " --log - --map user", `--map: "user" is not ATTRIBUTE=$FIELD`},
		{"--rules " + rules + " --log - --map user=$no", `format combined has no field "no"; it has remote_addr`},
		{"--rules " + rules + " --log - --map user=a --map user=b", `map: attribute "user" stands there twice`},
		{"--rules " + rules + " --log - --format xml", `format "xml" is not one of combined, json`},
		{"--rules " + rules + " --log - --time-field t", "time field: format combined says itself"},
		{"--rules " + rules + " --log - --format decisions --map a=b", "map: a decision log says itself"},
		{"--rules " + descriptors + " --log -", `rules: domain "edge" has descriptors of Envoy, whose requests only a log of format decisions has`},
	} {
		if out, problems, code := weirOf(t, "", append([]string{"simulate"}, strings.Fields(c.args)...)...); code != 2 || !strings.Contains(problems, c.want) || out != "" {
			t.Errorf("%s: %d %s", c.args, code, problems)
		}
	}
}
