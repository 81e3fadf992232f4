package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

const (
	alertsFile = "deploy/prometheus/alerts.yaml"
	testsFile  = "deploy/prometheus/alerts_test.yaml"
	pagesDir   = "docs/operations/alerts"
	pagesURL   = "https://github.com/weirlimit/weir/blob/main/" + pagesDir + "/"
)

// alert is one of alertsFile.
type alert struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

// page is the path of the alert's page.
func (a alert) page() string {
	return pagesDir + "/" + strings.TrimPrefix(a.Annotations["runbook_url"], pagesURL)
}

func readAlerts(t *testing.T) (all []alert) {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal([]byte(readFile(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 20 {
		t.Fatalf("%d alerts", len(all))
	}
	return all
}

// Each alert has a page that begins with its name, says when it fires, and has the parts that an operator looks for. Each page has an alert.
func TestAlertsHavePages(t *testing.T) {
	index := readFile(t, "docs/operations/alerts.md")
	var pages []string
	for _, a := range readAlerts(t) {
		if !strings.HasPrefix(a.Annotations["runbook_url"], pagesURL) {
			t.Errorf("%s: its runbook_url is %q", a.Alert, a.Annotations["runbook_url"])
			continue
		}
		for _, name := range []string{"summary", "description"} {
			if a.Annotations[name] == "" {
				t.Errorf("%s has no %s", a.Alert, name)
			}
		}
		if s := a.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s: severity is %q", a.Alert, s)
		}
		file := filepath.Base(a.page())
		pages = append(pages, file)
		after := "after " + a.For
		if a.For == "0m" {
			after = "at once"
		}
		page := readFile(t, a.page())
		for _, part := range []string{
			"\n## What it means\n\n", "\n`" + a.Labels["severity"] + "`, " + after + ", while this is true:\n\n```promql\n" + a.Expr + "\n```\n",
			"\n## How to look\n\n```promql\n", "\n## What to do\n\n1. ",
		} {
			if !strings.Contains(page, part) {
				t.Errorf("%s lacks %q", a.page(), part)
			}
		}
		if !strings.HasPrefix(page, "# "+a.Alert+": ") {
			t.Errorf("%s does not begin with %s", a.page(), a.Alert)
		}
		if row := "\n| [" + a.Alert + "](alerts/" + file + ") | " + a.Labels["severity"] + " | "; !strings.Contains(index, row) {
			t.Errorf("docs/operations/alerts.md has no row %q", row)
		}
	}
	files, err := os.ReadDir(filepath.Join(root, pagesDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(pages, f.Name()) {
			t.Errorf("%s/%s is the page of no alert", pagesDir, f.Name())
		}
	}
}

// The tests of promtool have each alert fire and end, and pass.
func TestAlertsFireAndEnd(t *testing.T) {
	promtool := program(t, "promtool")
	var file struct {
		Tests []struct {
			Name  string
			Rules []struct {
				At    string      `yaml:"eval_time"`
				Alert string      `yaml:"alertname"`
				Want  []yaml.Node `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal([]byte(readFile(t, testsFile)), &file); err != nil {
		t.Fatal(err)
	}
	for _, a := range readAlerts(t) {
		var fires, ends time.Duration
		for _, test := range file.Tests {
			for _, r := range test.Rules {
				at, err := time.ParseDuration(r.At)
				if err != nil {
					t.Fatal(err)
				}
				if r.Alert == a.Alert && len(r.Want) > 0 {
					fires = at
				} else if r.Alert == a.Alert && fires > 0 {
					ends = at
				}
			}
		}
		if fires == 0 || ends <= fires {
			t.Errorf("%s does not have %s fire and end", testsFile, a.Alert)
		}
	}
	for _, args := range [][]string{{"check", "rules", filepath.Base(alertsFile)}, {"test", "rules", filepath.Base(testsFile)}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = filepath.Join(root, filepath.Dir(alertsFile))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Names of metrics in queries, and in rows of the page about metrics.
var (
	metricName = regexp.MustCompile(`\b(?:weir|ratelimit)_[a-z_]+`)
	metricRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|")
)

// knownMetrics are the series of the metrics on the page that TestMetricsPage of package node holds to the code.
func knownMetrics(t *testing.T) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	for _, row := range metricRow.FindAllStringSubmatch(readFile(t, "docs/reference/metrics.md"), -1) {
		known[row[1]] = true
		if row[2] == "histogram" {
			known[row[1]+"_bucket"], known[row[1]+"_sum"], known[row[1]+"_count"] = true, true, true
		}
	}
	if len(known) < 50 {
		t.Fatalf("found %d metrics", len(known))
	}
	return known
}

// Every metric that an alert, its page or its test names is one that nodes have.
func TestAlertsNameMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	files := []string{alertsFile, testsFile, "docs/operations/alerts.md"}
	for _, a := range readAlerts(t) {
		files = append(files, a.page())
	}
	found := 0
	for _, file := range files {
		for _, name := range metricName.FindAllString(readFile(t, file), -1) {
			found++
			if !known[name] {
				t.Errorf("%s names %s, which is no metric", file, name)
			}
		}
	}
	if found < 100 {
		t.Fatalf("found %d names", found)
	}
}

// shell is a block of commands in a page, and inline a command in its text.
var (
	shell  = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```\n")
	inline = regexp.MustCompile("`(weir [a-z][^`]*)`")
)

// Every command of weir that a page names is one of docs/reference/commands.md, and has the flags that it is given.
func TestAlertsNameCommandsThatExist(t *testing.T) {
	sections := make(map[string]string) // by command
	for _, s := range strings.Split(readFile(t, "docs/reference/commands.md"), "\n## weir ")[1:] {
		name, text, _ := strings.Cut(s, "\n")
		sections[name] = text
	}
	found := 0
	for _, a := range readAlerts(t) {
		page := readFile(t, a.page())
		var commands []string
		for _, block := range shell.FindAllStringSubmatch(page, -1) {
			commands = append(commands, strings.Split(block[1], "\n")...)
		}
		for _, m := range inline.FindAllStringSubmatch(page, -1) {
			commands = append(commands, m[1])
		}
		for _, line := range commands {
			words := strings.Fields(line)
			if words[0] != "weir" {
				continue
			}
			found++
			text, ok := sections[strings.Join(words[1:min(len(words), 3)], " ")]
			if !ok {
				text, ok = sections[words[1]]
			}
			if !ok {
				t.Errorf("%s: no command %s", a.page(), line)
				continue
			}
			for _, w := range words {
				if strings.HasPrefix(w, "--") && !strings.Contains(text, "\n| `"+w+"`") && !strings.Contains(text, "\n| `"+w+" ") {
					t.Errorf("%s: %s has no flag %s", a.page(), line, w)
				}
			}
		}
	}
	if found < 30 {
		t.Fatalf("found %d commands", found)
	}
}
