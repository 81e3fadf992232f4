package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const clusterRules = `domain: default
rules:
  - {id: per-user, per: [user], limits: [{limit: 1000000, window: 1h}]}
  - {id: few, when: {endpoint: /few}, per: [user], limits: [{limit: 2, window: 1h}]}
  - {id: tried, when: {endpoint: /tried}, limits: [{limit: 0, window: 1h}], enforce: 0}
  - {id: strict, when: {endpoint: /strict}, per: [user], durability: strict, limits: [{limit: 20, window: 1h}]}
`

const clusterDescriptors = `domain: proxy
descriptors:
  - {key: path, value: /few, rate_limit: {unit: day, requests_per_unit: 2}}
  - {key: path, rate_limit: {unit: day, requests_per_unit: 1000000}}
`

// A real Prometheus scrapes three nodes with TLS under load. Every query of the dashboard returns a number then, all alerts can be
// evaluated and none fires, all queries of their pages are understood, and promtool finds no fault in the metrics. A node that is killed
// is noticed.
func TestClusterIsWatched(t *testing.T) {
	testform.NotInBrief(t)
	prometheus, promtool := program(t, "prometheus"), program(t, "promtool")
	certs := process.NewCertificates(t)
	certs.Make("client", "prometheus", "--role", "metrics")
	rules := t.TempDir()
	for name, text := range map[string]string{"rules.yaml": clusterRules, "proxy.yaml": clusterDescriptors} {
		if err := os.WriteFile(filepath.Join(rules, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	etcd := process.StartEtcd(t)
	ids := []string{"a", "b", "c"}
	nodes := make([]*process.Node, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() {
			nodes[i] = certs.Start(id, "--etcd", etcd.Endpoint, "--rules", rules, "--snapshot-every", "1s", "--auth-attribute", "user=X-User")
		})
	}
	wg.Wait()
	process.AwaitMembers(t, process.Patience, nodes...)
	load(t, certs, nodes)
	p := startPrometheus(t, prometheus, certs, nodes)

	waiting := readDashboard(t).queries("weir")
	process.Await(t, process.Patience, func() error {
		var last error
		for title, queries := range waiting {
			for len(queries) > 0 {
				if err := p.hasNumbers(queries[0]); err != nil {
					last = fmt.Errorf("%q: %w", title, err)
					break
				}
				queries = queries[1:]
			}
			if waiting[title] = queries; len(queries) == 0 {
				delete(waiting, title)
			}
		}
		return last
	})
	for _, a := range readAlerts(t) {
		for _, query := range pageQueries(t, a) {
			if _, err := p.query(query); err != nil {
				t.Errorf("%s: %v", a.page(), err)
			}
		}
	}
	for name, state := range p.alerts(t) {
		if state != "inactive" && state != "pending" {
			t.Errorf("%s is %s", name, state)
		}
	}
	lint(t, promtool, scrape(t, certs, nodes[0]))

	nodes[2].Kill()
	process.Await(t, process.Patience, func() error {
		if state := p.alerts(t)["WeirNodeDown"]; state == "inactive" {
			return fmt.Errorf("WeirNodeDown is %s after a node was killed", state)
		}
		return nil
	})
}

// load has all APIs of the nodes be asked until the test ends.
func load(t *testing.T, certs process.Certificates, nodes []*process.Node) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { stop(); wg.Wait() })
	through, err := client.New(nodes[0].GRPC, client.WithTLS(certs.Config("client-admin")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	https := &http.Client{Transport: &http.Transport{TLSClientConfig: certs.Config("client-admin")}, Timeout: process.Patience}
	t.Cleanup(https.CloseIdleConnections)
	for _, n := range nodes {
		wg.Go(func() {
			pause := time.NewTicker(20 * time.Millisecond)
			defer pause.Stop()
			for i := 0; ; i++ {
				select {
				case <-ctx.Done():
					return
				case <-pause.C:
				}
				user := "user-" + strconv.Itoa(i%50)
				for _, endpoint := range []string{"/", "/few", "/tried", "/strict"} {
					// Errors end nothing: the last node is killed, and what is missing in the metrics is noticed there.
					req := &weirv1.RateLimitRequest{IdentifierType: "user", Identifier: user, Endpoint: endpoint}
					_, _ = n.Client.Check(ctx, req)
					_, _ = n.Client.CheckBatch(ctx, []*weirv1.RateLimitRequest{req, req})
					_, _ = through.Check(ctx, req)
				}
				for path, body := range map[string]string{
					"/v1/check": `{"identifier_type":"user","identifier":"` + user + `","endpoint":"/"}`,
					"/json":     `{"domain":"proxy","descriptors":[{"entries":[{"key":"path","value":"/few"}]}]}`,
					"/auth":     "",
				} {
					post(ctx, https, "https://"+n.HTTP+path, body)
				}
				post(ctx, https, "https://"+n.HTTP+"/json", "{}") // an error
			}
		})
	}
}

func post(ctx context.Context, c *http.Client, url, body string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return
	}
	if resp, err := c.Do(req); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}

// server is a running Prometheus, by its URL.
type server string

// startPrometheus has a Prometheus scrape the nodes and evaluate the alerts every second, until the test ends.
func startPrometheus(t *testing.T, program string, certs process.Certificates, nodes []*process.Node) server {
	t.Helper()
	alerts, err := filepath.Abs(filepath.Join(root, alertsFile))
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, n := range nodes {
		targets = append(targets, strconv.Quote(n.HTTP))
	}
	config := fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: weir
    scheme: https
    tls_config: {ca_file: %q, cert_file: %q, key_file: %q}
    static_configs: [{targets: [%s]}]
`, alerts, certs.File("ca.crt"), certs.File("client-prometheus.crt"), certs.File("client-prometheus.key"), strings.Join(targets, ", "))
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort(process.Host(t), "9099") // no other process has this host, nor this one another listener there
	var log bytes.Buffer
	cmd := exec.Command(program, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of Prometheus:\n%s", log.String())
		}
	})
	s := server("http://" + address)
	process.Await(t, process.Patience, func() error {
		_, err := s.query("up")
		return err
	})
	return s
}

// get asks for a path of the API, and returns what it says.
func (s server) get(path string, data any) error {
	resp, err := http.Get(string(s) + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}

// query returns the values of an instant query.
func (s server) query(q string) (values []float64, err error) {
	var data struct {
		Type   string `json:"resultType"`
		Result json.RawMessage
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(q), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	if data.Type != "vector" {
		return nil, fmt.Errorf("%s is a %s, and no vector", q, data.Type)
	}
	var series []struct{ Value [2]any }
	if err := json.Unmarshal(data.Result, &series); err != nil {
		return nil, err
	}
	for _, one := range series {
		v, err := strconv.ParseFloat(one.Value[1].(string), 64)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	return values, nil
}

// hasNumbers returns an error unless a query returns a number.
func (s server) hasNumbers(q string) error {
	values, err := s.query(q)
	if err != nil {
		return err
	}
	for _, v := range values {
		if !math.IsNaN(v) {
			return nil
		}
	}
	return fmt.Errorf("%s has %d values, and no number", q, len(values))
}

// alerts returns the states of the alerts, all of which can be evaluated.
func (s server) alerts(t *testing.T) map[string]string {
	t.Helper()
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	states := make(map[string]string)
	process.Await(t, process.Patience, func() error {
		if err := s.get("/api/v1/rules?type=alert", &data); err != nil {
			return err
		}
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				if r.Health != "ok" {
					return fmt.Errorf("%s: %s %s", r.Name, r.Health, r.LastError)
				}
				states[r.Name] = r.State
			}
		}
		return nil
	})
	if want := len(readAlerts(t)); len(states) != want {
		t.Fatalf("%d alerts, want %d", len(states), want)
	}
	return states
}

// promql is a block of queries in a page.
var promql = regexp.MustCompile("(?s)\n```promql\n(.*?)\n```\n")

// pageQueries are those of an alert's page, one on each line.
func pageQueries(t *testing.T, a alert) (all []string) {
	t.Helper()
	for _, block := range promql.FindAllStringSubmatch(readFile(t, a.page()), -1) {
		all = append(all, strings.Split(block[1], "\n")...)
	}
	if len(all) < 2 {
		t.Errorf("%s has %d queries", a.page(), len(all))
	}
	return all
}

// scrape returns the metrics of a node.
func scrape(t *testing.T, certs process.Certificates, n *process.Node) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: certs.Config("client-prometheus")}, Timeout: process.Patience}
	defer c.CloseIdleConnections()
	resp, err := c.Get("https://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return string(text)
}

// lint fails if promtool finds fault in metrics, except in names that envoyproxy/ratelimit has given.
func lint(t *testing.T, promtool, metrics string) {
	t.Helper()
	var ours strings.Builder
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), "ratelimit_") {
			ours.WriteString(line)
		}
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(ours.String())
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
