package node

import (
	"context"
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

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/ring"
)

var updateMetrics = flag.Bool("update", false, "write docs/reference/metrics.md")

// docs/reference/metrics.md is what the metrics of a node say of themselves, with the advice of metricSections. That has every metric once,
// and no other.
func TestMetricsPage(t *testing.T) {
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

// metricRows are what the metrics of a node say of themselves, by their names: the beginnings of the page's rows. The node has done something of
// everything, because some metrics are not there before.
func metricRows(t *testing.T) map[string]string {
	opts := testOptions(t)
	opts.Rules = filepath.Join(t.TempDir(), "rules.yaml")
	const file = "{domain: d, descriptors: [{key: k, value: v, descriptors: [{key: l, rate_limit: {unit: day, requests_per_unit: 5}}]}]}"
	if err := os.WriteFile(opts.Rules, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	opts.DecisionLog = filepath.Join(t.TempDir(), "decisions.log")
	n, err := build(t.Context(), Network{}, opts, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	r, err := ring.Build(ring.DefaultParams, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	partitions := ring.DefaultParams.Partitions
	n.ownership.Adopt(&cluster.View{
		Number: 1, Ring: r, Epochs: make([]uint64, partitions), Bases: make([]uint64, partitions),
		Members: []cluster.Member{{ID: "a", Address: n.opts.GRPC, Incarnation: n.self.Incarnation}, {ID: "b", Address: freed(t), Incarnation: 1}},
	})
	defer func() { // which leaves b
		ended, end := context.WithCancel(t.Context())
		end()
		n.ownership.Run(ended)
	}()
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
	secured, err := build(t.Context(), Network{}, withTLS(t, testOptions(t)), quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer secured.close()
	follows := testOptions(t)
	follows.XDSServer = freed(t)
	following, err := build(t.Context(), Network{}, follows, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer following.close()
	rows := make(map[string]string)
	for _, n := range []*node{n, secured, following} {
		families, err := n.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			name := f.GetName()
			if rows[name] != "" || !strings.HasPrefix(name, "weir_") && !strings.HasPrefix(name, "ratelimit_") {
				continue // of Go and of the process
			}
			labels := make(map[string]bool)
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels["`"+l.GetName()+"`"] = true
				}
			}
			rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()),
				strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp())
		}
	}
	return rows
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
