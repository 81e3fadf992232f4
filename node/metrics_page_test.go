package node

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/ring"
)

var updateMetrics = flag.Bool("update", false, "write docs/reference/metrics.md")

// docs/reference/metrics.md is what the metrics of a node say of themselves, with the advice of metricSections. That has every metric once,
// and no other.
func TestMetricsPage(t *testing.T) {
	t.Parallel()
	rows := metricRows(t)
	contents, tables := "", ""
	for _, s := range metricSections {
		anchor := strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(strings.ToLower(s.heading))
		contents += "- [" + s.heading + "](#" + anchor + ")\n"
		tables += "## " + s.heading + "\n\n"
		if s.about != "" {
			tables += s.about + "\n\n"
		}
		tables += "| name | type | labels | meaning | what to do |\n|---|---|---|---|---|\n"
		for _, m := range s.metrics {
			row := rows[m.name]
			if row == "" {
				t.Errorf("metricSections has advice on %s, which is no metric, or has it twice", m.name)
			}
			if m.advice == "" {
				t.Errorf("metricSections has no advice on %s", m.name)
			}
			delete(rows, m.name)
			tables += row + " " + m.advice + " |\n"
		}
		tables += "\n"
		if s.after != "" {
			tables += s.after + "\n\n"
		}
	}
	for name := range rows {
		t.Errorf("metricSections has no advice on %s", name)
	}
	page := metricsPageHead + "## Contents\n\n- [Scrape them](#scrape-them)\n" + contents + "- [Go and the process](#go-and-the-process)\n\n" +
		metricsPageScrape + tables + metricsPageRuntime
	for _, word := range strings.FieldsFunc(page, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		if strings.HasPrefix(word, "weir_") && !strings.Contains(tables, "\n| `"+word+"` | ") {
			t.Errorf("the page names %s, which is no metric", word)
		}
	}
	const path = "../docs/reference/metrics.md"
	if *updateMetrics && !t.Failed() {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if written, err := os.ReadFile(path); err != nil || string(written) != page {
		t.Errorf("%s is out of date: run go test ./node -run TestMetricsPage -update (%v)", path, err)
	}
}

// metricRows are what the metrics of a node say of themselves, by their names: the beginnings of the page's rows.
func metricRows(t *testing.T) map[string]string {
	rows, labels := make(map[string]string), make(map[string]labelValues)
	for _, n := range metricNodes(t) {
		families, err := n.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			name := f.GetName()
			if !strings.HasPrefix(name, "weir_") && !strings.HasPrefix(name, foreignMetrics) {
				continue // of Go and of the process
			}
			if labels[name] == nil {
				labels[name] = make(labelValues)
			}
			labels[name].add(f.GetMetric())
			rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()), labels[name], f.GetHelp())
		}
	}
	return rows
}

// labelValues are the values of each label of a metric.
type labelValues map[string]map[string]bool

func (l labelValues) add(series []*dto.Metric) {
	for _, one := range series {
		for _, pair := range one.GetLabel() {
			name := pair.GetName()
			if l[name] == nil {
				l[name] = make(map[string]bool)
			}
			l[name][pair.GetValue()] = true
		}
	}
}

// String is what the page says of them, such as "`api`, `result`: `allowed` `denied`". Only labels with the same values on all nodes have these.
func (l labelValues) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		text := "`" + name + "`"
		if !slices.Contains(variableLabels, name) {
			text += ": `" + strings.Join(slices.Sorted(maps.Keys(l[name])), "` `") + "`"
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// variableLabels are labels whose values differ from one cluster to the next, or are those of gRPC and HTTP.
var variableLabels = []string{"call", "code", "domain", "goversion", "hash", "key1", "key2", "peer", "rule", "version"}

// foreignMetrics begins the names that are those of envoyproxy/ratelimit, for its dashboards.
const foreignMetrics = "ratelimit_"

// Names, units and texts of all metrics follow the conventions of Prometheus, as promtool check metrics reads them. Foreign names do not.
func TestMetricsConventions(t *testing.T) {
	t.Parallel()
	for _, n := range metricNodes(t) {
		families, err := n.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p.Metric, foreignMetrics) {
				t.Errorf("%s: %s", p.Metric, p.Text)
			}
		}
	}
}

// metricNodes returns nodes that have all metrics together: one with a decision log, which has done something of everything because some metrics
// are not there before, one with TLS, and one with rules of an xDS server.
func metricNodes(t *testing.T) []*node {
	t.Helper()
	opts := testOptions(t)
	opts.Rules = filepath.Join(t.TempDir(), "rules.yaml")
	const file = "{domain: d, descriptors: [{key: k, value: v, descriptors: [{key: l, rate_limit: {unit: day, requests_per_unit: 5}}]}]}"
	if err := os.WriteFile(opts.Rules, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	opts.DecisionLog = filepath.Join(t.TempDir(), "decisions.log")
	secured, follows := withTLS(t, testOptions(t)), testOptions(t)
	secured.RLSListen, secured.RLSCert, secured.RLSKey = "127.0.0.1:0", secured.TLSCert, secured.TLSKey
	follows.XDSServer, follows.XDSCert, follows.XDSKey = "https://"+freed(t), secured.TLSCert, secured.TLSKey
	var nodes []*node
	for _, opts := range []Options{opts, secured, follows} {
		n, err := build(t.Context(), Network{}, opts, quiet())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.close)
		nodes = append(nodes, n)
	}
	useMetrics(t, nodes[0])
	return nodes
}

// useMetrics has the node own partitions next to a node b, and answer calls of envoyproxy/ratelimit's clients, until the test ends.
func useMetrics(t *testing.T, n *node) {
	t.Helper()
	v := &view.View{Number: 1, Electorate: view.Electorate{Changed: 1}, Members: []view.Member{
		{Life: view.Life{ID: "a", Incarnation: n.self.Incarnation}, Address: n.opts.GRPC}, {Life: view.Life{ID: "b", Incarnation: 1}, Address: freed(t)},
	}}
	for p := range ring.DefaultParams.Partitions {
		v.Partitions = append(v.Partitions, view.Partition{Owner: v.Members[p%2].Life, Standby: v.Members[1-p%2].Life, Term: 1})
	}
	n.owners.Adopt(v)
	t.Cleanup(func() { n.owners.Run(t.Context()) }) // which leaves b: the context has ended by then
	for body, want := range map[string]int{
		`{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"},{"key":"l","value":"x"}]}]}`: http.StatusOK,
		`{}`: http.StatusBadRequest,
	} {
		w := httptest.NewRecorder()
		n.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost/json", strings.NewReader(body)))
		if w.Code != want {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

// withTLS returns options of a node with a certificate of a new authority.
func withTLS(t *testing.T, opts Options) Options {
	t.Helper()
	opts.Cluster = "default"
	a, err := certs.CreateAuthority(t.TempDir(), opts.Cluster, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	pair, err := a.Issue(certs.Name{Kind: certs.Node, ID: opts.ID}, []string{"localhost"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	opts.TLSCert, opts.TLSKey, opts.TLSCA = pair.Cert, pair.Key, a.CertFile()
	return opts
}
