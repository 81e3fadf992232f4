package node

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/ring"
)

// metricRow matches a row of docs/reference/metrics.md that describes a metric.
var metricRow = regexp.MustCompile("^\\| `(weir|ratelimit)_[a-z_]+` \\|")

// docs/reference/metrics.md has a row for every metric of a node, as the metric describes itself, and
// none for what is not there.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	described := make(map[string]bool) // rows that name a metric
	for line := range strings.Lines(string(page)) {
		if metricRow.MatchString(line) {
			described[strings.TrimSuffix(line, "\n")] = true
		}
	}
	rows := metricRows(t)
	for _, row := range rows {
		if !described[row] {
			t.Errorf("the page lacks the row\n%s", row)
		}
		delete(described, row)
	}
	for row := range described {
		t.Errorf("no metric is described by the row\n%s", row)
	}
	names := strings.Join(rows, "\n")
	for _, word := range strings.FieldsFunc(string(page), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		if strings.HasPrefix(word, "weir_") && !strings.Contains(names, "`"+word+"`") {
			t.Errorf("the page names %s, which is no metric", word)
		}
	}
}

// metricRows are what the page should say of the metrics of a node that has done something of
// everything: of some, nothing is told before.
func metricRows(t *testing.T) (rows []string) {
	opts := testOptions(t)
	opts.Rules = filepath.Join(t.TempDir(), "rules.yaml")
	const file = "{domain: d, descriptors: [{key: k, value: v, descriptors: [{key: l, rate_limit: {unit: day, requests_per_unit: 5}}]}]}"
	if err := os.WriteFile(opts.Rules, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
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
	seen := make(map[string]bool)
	for _, n := range []*node{n, secured} {
		families, err := n.metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			name := f.GetName()
			if seen[name] || !strings.HasPrefix(name, "weir_") && !strings.HasPrefix(name, "ratelimit_") {
				continue // of Go and of the process
			}
			seen[name] = true
			labels := make(map[string]bool)
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					labels["`"+l.GetName()+"`"] = true
				}
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(f.GetType().String()),
				strings.Join(slices.Sorted(maps.Keys(labels)), ", "), f.GetHelp()))
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
