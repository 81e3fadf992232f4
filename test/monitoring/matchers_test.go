package monitoring

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Parts of the page about metrics and of queries.
var (
	labelsRow  = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| (.*?) \\|")
	labelEntry = regexp.MustCompile("`([a-z0-9_]+)`(?:: ((?:`[^`]+` ?)+))?(?:, |$)")
	selector   = regexp.MustCompile(`\b((?:weir|ratelimit)_[a-z_]+[a-z])\{([^{}]*)\}`)
	matcher    = regexp.MustCompile(`^\s*([a-z0-9_]+)\s*(?:(=~|!~|!=|=)\s*"([^"]*)"\s*)?$`) // text has labels without values, too
	grouping   = regexp.MustCompile(`\b(?:by|without|on|ignoring)\s*\(([^()]*)\)`)
	template   = regexp.MustCompile(`\$labels\.([a-z0-9_]+)`)
)

// metricLabels are the values of each label of a metric, by the metric's series. A label with other values on other nodes has none.
type metricLabels map[string]map[string][]string

// readLabels reads the page that TestMetricsPage of package node writes from the metrics of nodes.
func readLabels(t *testing.T) metricLabels {
	t.Helper()
	all, withValues := make(metricLabels), 0
	for _, row := range labelsRow.FindAllStringSubmatch(readFile(t, "docs/reference/metrics.md"), -1) {
		labels := map[string][]string{"job": nil, "instance": nil} // of Prometheus
		for _, entry := range labelEntry.FindAllStringSubmatch(row[3], -1) {
			labels[entry[1]] = strings.Fields(strings.ReplaceAll(entry[2], "`", " "))
			withValues += len(labels[entry[1]])
		}
		all[row[1]] = labels
		if row[2] == "histogram" {
			all[row[1]+"_sum"], all[row[1]+"_count"] = labels, labels
			all[row[1]+"_bucket"] = maps.Clone(labels)
			all[row[1]+"_bucket"]["le"] = nil
		}
	}
	if len(all) < 50 || withValues < 30 {
		t.Fatalf("found %d metrics with %d values of labels", len(all), withValues)
	}
	return all
}

// checkMatchers fails the test if a selector of a text has a label or a value that no series can have. It returns how many values it has compared.
func (m metricLabels) checkMatchers(t *testing.T, where, text string) (compared int) {
	t.Helper()
	for _, found := range selector.FindAllStringSubmatch(text, -1) {
		name := found[1]
		for one := range strings.SplitSeq(found[2], ",") {
			parts := matcher.FindStringSubmatch(one)
			if parts == nil {
				t.Errorf("%s: %s has %q, which is no matcher", where, name, one)
				continue
			}
			label, operator := parts[1], parts[2]
			values, ok := m[name][label]
			if !ok {
				t.Errorf("%s: %s has no label %s", where, name, label)
			}
			if len(values) == 0 || operator == "" {
				continue
			}
			alternatives := []string{regexp.QuoteMeta(parts[3])}
			if strings.HasSuffix(operator, "~") {
				alternatives = strings.Split(parts[3], "|")
			}
			for _, pattern := range alternatives {
				compared++
				if matches := regexp.MustCompile("^(?:" + pattern + ")$").MatchString; !slices.ContainsFunc(values, matches) {
					t.Errorf("%s: the label %s of %s is never %s, but one of %v", where, label, name, pattern, values)
				}
			}
		}
	}
	return compared
}

// checkGrouping fails the test if a query groups by a label, or a text for a person shows one, that none of the query's metrics has.
func (m metricLabels) checkGrouping(t *testing.T, where, query, shown string) {
	t.Helper()
	var names []string
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		names = append(names, strings.FieldsFunc(found[1], func(r rune) bool { return r == ',' || r == ' ' })...)
	}
	for _, found := range template.FindAllStringSubmatch(shown, -1) {
		names = append(names, found[1])
	}
	metrics := metricName.FindAllString(query, -1)
	for _, name := range names {
		has := func(metric string) bool { _, ok := m[metric][name]; return ok }
		if name != "job" && name != "instance" && len(metrics) > 0 && !slices.ContainsFunc(metrics, has) {
			t.Errorf("%s: none of %v has the label %s", where, metrics, name)
		}
	}
}

// Every label in a query of an alert, of the dashboard or of a page is one that the metric has, and every value is one that nodes give it.
func TestQueriesMatchLabelsThatExist(t *testing.T) {
	labels := readLabels(t)
	compared := make(map[string]int)
	for _, a := range readAlerts(t) {
		compared[alertsFile] += labels.checkMatchers(t, a.Alert, a.Expr)
		labels.checkGrouping(t, a.Alert, a.Expr, a.Annotations["summary"]+a.Annotations["description"])
		for _, query := range pageQueries(t, a) {
			labels.checkGrouping(t, a.page(), query, "")
		}
	}
	for title, queries := range readDashboard(t).queries("weir") {
		for _, query := range queries {
			compared[dashboardFile] += labels.checkMatchers(t, title, query)
			labels.checkGrouping(t, title, query, "")
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		kind := "other pages"
		if strings.Contains(path, pagesDir) {
			kind = pagesDir
		}
		compared[kind] += labels.checkMatchers(t, path, string(text))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{alertsFile, dashboardFile, pagesDir} {
		if compared[kind] < 5 {
			t.Errorf("found %d values in %s", compared[kind], kind)
		}
	}
}
