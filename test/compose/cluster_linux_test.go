package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// knownImages returns the images of the services, by the programs of this machine that stand for them. Without one it skips the test,
// unless all tests must run.
func knownImages(t *testing.T) map[string]image {
	t.Helper()
	find := func(variable, dir, name string) string {
		path := name
		if v := os.Getenv(variable); v != "" && dir == "" {
			path = v
		} else if v != "" {
			path = filepath.Join(v, name)
		}
		found, err := exec.LookPath(path)
		if err != nil && name == "caddy" {
			found, err = exec.LookPath("/usr/sbin/caddy")
		}
		if err == nil {
			found, err = filepath.EvalSymlinks(found)
		}
		if err == nil {
			return found
		}
		why := fmt.Sprintf("no %s: put one into $PATH, or where it is into $%s, as .ci/run does: %v", name, variable, err)
		if testform.AllTests() {
			t.Fatal(why)
		}
		t.Skip(why)
		return ""
	}
	weir := weirImage(t)
	etcd := image{
		programs:  map[string]string{"/usr/local/bin/etcd": find("ETCD_BIN", "dir", "etcd"), "/usr/local/bin/etcdctl": find("ETCD_BIN", "dir", "etcdctl")},
		libraries: true, cmd: []string{"/usr/local/bin/etcd"},
	}
	return map[string]image{
		"weir-0": weir, "weir-1": weir, "weir-2": weir,
		"etcd-0": etcd, "etcd-1": etcd, "etcd-2": etcd,
		"envoy": {
			programs: map[string]string{"/usr/local/bin/envoy": envoyProgram(t, find("ENVOY", "", "envoy"))}, libraries: true,
			entrypoint: []string{"/usr/local/bin/envoy"}, cmd: []string{"-c", "/etc/envoy/envoy.yaml"}, uid: 65532, gid: 65532,
		},
		"backend": {
			programs: map[string]string{"/usr/bin/caddy": find("CADDY", "", "caddy")}, libraries: true, env: []string{"XDG_CONFIG_HOME=/config", "XDG_DATA_HOME=/data"},
			cmd: []string{"caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"}, dirs: []string{"/config", "/data"},
		},
		"prometheus": {
			programs: map[string]string{"/bin/prometheus": find("PROM_BIN", "dir", "prometheus")}, libraries: true,
			entrypoint: []string{"/bin/prometheus"}, uid: 65534, gid: 65534, dirs: []string{"/prometheus"},
		},
	}
}

// envoyProgram returns the program that a file starts: the file of the Python package is a script that starts another.
func envoyProgram(t *testing.T, file string) string {
	t.Helper()
	if !strings.HasPrefix(readStart(t, file), "#!") {
		return file
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(file), "../lib/python*/site-packages/envoy/_bin/envoy"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is a script, and there is not one program that it starts: %q, %v", file, found, err)
	}
	return found[0]
}

// readStart returns the first bytes of a file.
func readStart(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer f.Close()
	b := make([]byte, 2)
	_, err = io.ReadFull(f, b)
	must(t, err)
	return string(b)
}

// weirImage is that of the Dockerfile, with the program as it is now. test/install builds it.
func weirImage(t *testing.T) image {
	t.Helper()
	i := image{programs: map[string]string{"/weir": process.Binary(t)}, uid: 65532, gid: 65532, dirs: []string{"/data"}}
	_, last, _ := strings.Cut(readFile(t, "Dockerfile"), "\nFROM scratch\n")
	for line := range strings.Lines(last) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch name {
		case "ENV":
			i.env = append(i.env, rest)
		case "ENTRYPOINT":
			must(t, json.Unmarshal([]byte(rest), &i.entrypoint))
		case "CMD":
			must(t, json.Unmarshal([]byte(rest), &i.cmd))
		case "USER":
			if rest != "65532:65532" {
				t.Fatalf("the image's user is %s", rest)
			}
		}
	}
	if len(i.env) == 0 || i.entrypoint == nil || i.cmd == nil {
		t.Fatalf("the Dockerfile has no ENV, ENTRYPOINT or CMD: %+v", i)
	}
	return i
}

// noData are the panels that are empty in this cluster, with why.
var noData = map[string]string{
	"Snapshots":           "the first is written after a minute",
	"Certificates end in": "the cluster has no TLS",
	"Errors":              "no call of Envoy fails",
	"Hits by domain":      "the rules are not of envoyproxy/ratelimit's format, which has these metrics",
	"Over the limit":      "the same",
}

// What a user does with the file: start it, ask through Envoy until the limit is used up, look at Prometheus, kill a node, start it again,
// stop all and start again. Everything is started by the file, except Grafana.
func TestClusterRuns(t *testing.T) {
	testform.NotInBrief(t)
	if os.Geteuid() != 0 {
		testform.LeaveOut(t, "only root may give each service a network")
	}
	p := load(t)
	e := newEngine(t, p, knownImages(t))
	for name := range p.Services {
		if e.services[name] == nil && name != "grafana" { // no package registry has Grafana; TestGrafanaFiles looks at its files
			t.Errorf("%s is not started", name)
		}
	}
	e.up()
	const limit = 10
	edge := "http://127.0.0.1:10000/"
	process.Await(t, process.Patience, func() error { return decided(get(edge, "first")) })

	// Up to the limit, and no further.
	users := make([]string, 20)
	for i := range users {
		users[i] = "user-" + strconv.Itoa(i)
		for n := range limit + 2 {
			a := get(edge, users[i])
			switch {
			case a.err != nil:
				t.Fatal(a.err)
			case n < limit && (a.status != http.StatusOK || a.body != "Hello from the backend.\n"):
				t.Fatalf("%s, request %d: %d, %q, want the backend's answer", users[i], n+1, a.status, a.body)
			case n >= limit && (a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == ""):
				t.Fatalf("%s, request %d: %d, %v, want 429 with Retry-After", users[i], n+1, a.status, a.header)
			}
		}
	}
	if a := get(edge, ""); a.status != http.StatusOK {
		t.Errorf("without a user: %d", a.status)
	}

	// A web page that has its own name resolve to this machine reaches no node, at none of the ports that are open on it.
	for _, port := range []string{"8080", "8081", "8082"} {
		for host, want := range map[string]int{"localhost:" + port: http.StatusOK, "weir-0:8080": http.StatusOK, "evil.example:" + port: http.StatusForbidden} {
			if status, err := getAs(t.Context(), "http://127.0.0.1:"+port+"/v1/health", host); err != nil || status != want {
				t.Errorf("port %s asked as %s: %d, %v, want %d", port, host, status, err, want)
			}
		}
	}

	stop := load5(t, edge)
	t.Run("Prometheus", watched)

	// A node is killed. All are answered, and no count is lost.
	e.kill("weir-1")
	for _, user := range users {
		stillDenied(t, edge, user)
	}
	prometheus := server("http://127.0.0.1:9099")
	process.Await(t, process.Patience, func() error {
		return prometheus.is(`up{instance="weir-1:8080"}`, 0)
	})
	e.restart("weir-1")
	stillDenied(t, edge, users[0])
	if failed := stop(); failed != nil {
		t.Errorf("while a node was killed and started again: %v", failed)
	}

	// The volumes keep the counts.
	var wg sync.WaitGroup
	for _, name := range servicesOf(p, "weir-") {
		wg.Go(func() { e.stop(name) })
	}
	wg.Wait()
	for _, name := range servicesOf(p, "weir-") {
		wg.Go(func() { e.restart(name) })
	}
	wg.Wait()
	for _, user := range users {
		stillDenied(t, edge, user)
	}
}

// answer is what Envoy answers.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

func get(at, user string) answer {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, at, nil)
	if err != nil {
		return answer{err: err}
	}
	if user != "" {
		req.Header.Set("X-User", user)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(body), err}
}

// getAs returns the status of the answer to a request with that Host.
func getAs(ctx context.Context, at, host string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return 0, err
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// decided returns an error unless a node has decided. Without a decision Envoy lets requests pass, and adds no header.
func decided(a answer) error {
	if a.err != nil {
		return a.err
	}
	if a.header.Get("X-Ratelimit-Limit") == "" {
		return fmt.Errorf("status %d without a decision", a.status)
	}
	return nil
}

// stillDenied fails unless the first request of the user is denied: the limit is used up.
func stillDenied(t *testing.T, edge, user string) {
	t.Helper()
	var a answer
	process.Await(t, process.Patience, func() error {
		a = get(edge, user)
		return decided(a)
	})
	if a.status != http.StatusTooManyRequests {
		t.Errorf("%s: %d, %v: its count is lost", user, a.status, a.header)
	}
}

// load5 has five callers ask until it is stopped. It returns the first answer that is neither the backend's nor a denial.
func load5(t *testing.T, edge string) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	failed := make(chan error, 1)
	for caller := range 5 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				at := edge
				if n%10 == 0 {
					at += "export"
				}
				a := get(at, fmt.Sprintf("load-%d-%d", caller, n/15))
				if a.err != nil || a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
					select {
					case failed <- fmt.Errorf("status %d, %v", a.status, a.err):
					default:
					}
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func() error {
		cancel()
		wg.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
}

// server is the URL of Prometheus.
type server string

func (s server) get(path string, data any) error {
	resp, err := http.Get(string(s) + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var a struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if a.Status != "success" {
		return fmt.Errorf("%s: %s", resp.Status, a.Error)
	}
	return json.Unmarshal(a.Data, data)
}

// query returns the numbers that a query returns.
func (s server) query(q string) (numbers []float64, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := s.get("/api/v1/query?query="+url.QueryEscape(q), &data); err != nil {
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	for _, r := range data.Result {
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(v) {
			numbers = append(numbers, v)
		}
	}
	return numbers, nil
}

// is returns an error unless a query returns one number, this one.
func (s server) is(q string, want float64) error {
	got, err := s.query(q)
	if err == nil && !slices.Equal(got, []float64{want}) {
		err = fmt.Errorf("%s is %v, want %v", q, got, want)
	}
	return err
}

// watched: Prometheus reaches all targets, has all alerts, none of which fires, and has data for the dashboard.
func watched(t *testing.T) {
	s := server("http://127.0.0.1:9099")
	process.Await(t, process.Patience, func() error { return s.is("count(up == 1)", 8) })
	var data struct {
		Groups []struct {
			Rules []struct{ Name, State, Health, LastError string }
		}
	}
	alerts := strings.Count(readFile(t, "deploy/prometheus/alerts.yaml"), "- alert: ")
	process.Await(t, process.Patience, func() error {
		if err := s.get("/api/v1/rules?type=alert", &data); err != nil {
			return err
		}
		n := 0
		for _, g := range data.Groups {
			for _, r := range g.Rules {
				n++
				if r.Health != "ok" || r.State == "firing" {
					return fmt.Errorf("%s: %s, %s %s", r.Name, r.State, r.Health, r.LastError)
				}
			}
		}
		if n != alerts || n == 0 {
			return fmt.Errorf("%d alerts, want %d", n, alerts)
		}
		return nil
	})
	values := strings.NewReplacer("$__rate_interval", "8s", "$job", "weir", "$instance", ".*")
	waiting, empty := map[string]string{}, map[string]bool{}
	for _, panel := range readDashboard(t).Panels {
		for _, target := range panel.Targets {
			if noData[panel.Title] == "" {
				waiting[values.Replace(target.Expr)] = panel.Title
			} else {
				empty[panel.Title] = true
			}
		}
	}
	if len(empty) != len(noData) {
		t.Errorf("noData names panels that the dashboard lacks: %v, %v", noData, empty)
	}
	if len(waiting) < 50 {
		t.Fatalf("found %d queries", len(waiting))
	}
	defer func() {
		if t.Failed() {
			for q, title := range waiting {
				t.Logf("no data: %q: %s", title, q)
			}
		}
	}()
	process.Await(t, process.Patience, func() error {
		for _, q := range slices.Sorted(maps.Keys(waiting)) {
			numbers, err := s.query(q)
			if err != nil {
				return err
			}
			if len(numbers) > 0 {
				delete(waiting, q)
			}
		}
		if len(waiting) > 0 {
			return fmt.Errorf("%d queries return no data", len(waiting))
		}
		return nil
	})
}
