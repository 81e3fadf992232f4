package monitoring

import (
	"encoding/json"
	"strings"
	"testing"
)

const dashboardFile = "deploy/grafana/weir.json"

// dashboard is dashboardFile, as far as tests look at it.
type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Targets                  []struct{ Expr string }
	GridPos                  struct{ X, Y, W, H int }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	if err := json.Unmarshal([]byte(readFile(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// queries are all of the dashboard, by the panel or the variable that they are of, as Grafana asks them for a job and all of its nodes,
// from a Prometheus that scrapes every second.
func (d dashboard) queries(job string) map[string][]string {
	values := strings.NewReplacer("$__rate_interval", "5s", "$job", job, "$instance", ".*")
	all := make(map[string][]string)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all[p.Title] = append(all[p.Title], values.Replace(target.Expr))
		}
	}
	for _, v := range d.Templating.List {
		if metric, _, ok := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ", "); ok && v.Type == "query" {
			all["variable "+v.Name] = []string{values.Replace(metric)}
		}
	}
	return all
}

// Each panel of the dashboard is described, has queries, and has a place of its own.
func TestDashboardPanels(t *testing.T) {
	d := readDashboard(t)
	ids, places := make(map[int]bool), make(map[[2]int]string)
	titles := make(map[string]bool)
	for _, p := range d.Panels {
		if ids[p.ID] || titles[p.Title] {
			t.Errorf("panel %d, %q: there are two", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%q has %d queries and the description %q", p.Title, len(p.Targets), p.Description)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := places[[2]int{x, y}]; other != "" {
					t.Fatalf("%q lies on %q", p.Title, other)
				}
				places[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(d.queries("weir")) < 50 {
		t.Errorf("found queries of %d panels", len(d.queries("weir")))
	}
}

// Every metric of the dashboard is one that nodes have.
func TestDashboardNamesMetricsThatExist(t *testing.T) {
	known := knownMetrics(t)
	for title, queries := range readDashboard(t).queries("weir") {
		for _, q := range queries {
			for _, name := range metricName.FindAllString(q, -1) {
				if !known[name] {
					t.Errorf("%q names %s, which is no metric", title, name)
				}
			}
		}
	}
}
