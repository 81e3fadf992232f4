package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	commonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	rlsconf "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/internal/xdstest"
	"github.com/weirlimit/weir/test/process"
)

// policyOf is what a gateway sends for a limit per user and year.
func policyOf(limit uint32) *rlsconf.RateLimitConfig {
	return &rlsconf.RateLimitConfig{Name: "default/eg/http", Domain: "default/eg/http", Descriptors: []*rlsconf.RateLimitDescriptor{
		{Key: "user", RateLimit: &rlsconf.RateLimitPolicy{Unit: rlsconf.RateLimitUnit_YEAR, RequestsPerUnit: limit}},
	}}
}

// envoyClient asks as the proxies of a gateway do.
func envoyClient(t *testing.T, address string, creds credentials.TransportCredentials) func(user string) (string, error) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return func(user string) (string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		answer, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{
			Domain: "default/eg/http", Descriptors: []*commonv3.RateLimitDescriptor{{Entries: []*commonv3.RateLimitDescriptor_Entry{{Key: "user", Value: user}}}},
		})
		return answer.GetOverallCode().String(), err
	}
}

// get returns the code and the body of a path.
func get(t *testing.T, url string) (int, string, error) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// expectCode waits until a path answers so.
func expectCode(t *testing.T, url string, want int) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		code, body, err := get(t, url)
		if err == nil && code != want {
			err = fmt.Errorf("%s: %d %s, want %d", url, code, body, want)
		}
		return err
	})
}

// startRatelimit starts weir under the name /bin/ratelimit, without arguments, with this environment and no other. It
// returns what it logs, and a function that stops it as Kubernetes does.
func startRatelimit(t *testing.T, env ...string) (log func() string, stop func()) {
	t.Helper()
	link := filepath.Join(t.TempDir(), "ratelimit")
	if err := os.Symlink(process.Binary(t), link); err != nil {
		t.Fatal(err)
	}
	return startCommand(t, []string{link}, env)
}

// startCommand is startRatelimit for another command.
func startCommand(t *testing.T, command, env []string) (log func() string, stop func()) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = env, file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	log = func() string {
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if t.Failed() {
			t.Log(log())
		}
	})
	return log, func() {
		t.Helper()
		stopped = true
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("told to stop: %v", err)
		}
	}
}

// port splits the port off an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// In the pod that Envoy Gateway makes for its rate limit service, weir starts without an argument, with the variables that
// the gateway sets and the ones of docs/envoy-gateway.md, follows the gateway's xDS server with mutual TLS, and serves proxies with TLS.
func TestInThePodOfEnvoyGateway(t *testing.T) {
	t.Parallel()
	host := process.Host(t)
	c, server := newGateway(t, host)
	httpAddress, grpcAddress, admin := freeAddressOn(t, host), freeAddressOn(t, host), freeAddressOn(t, host)
	pod := pagePod{name: "pod", ip: host, has: map[string]string{"/var/lib/weir": t.TempDir(), "0.0.0.0:19001": admin}}
	log, stop := startRatelimit(t, slices.Concat(podListens(t, httpAddress, grpcAddress), []string{"WEIR_GRPC=" + host + ":0"},
		gatewaySets(c, server), pod.environment(t, onePodOfThePage(t).Container.Env))...)
	url := "http://" + httpAddress
	expectCode(t, url+"/healthcheck", http.StatusOK)
	health := func(part string) {
		t.Helper()
		process.Await(t, process.Patience, func() error {
			_, body, err := get(t, "http://"+admin+"/v1/health")
			if err == nil && !strings.Contains(body, part) {
				err = fmt.Errorf("no %q in %s", part, body)
			}
			return err
		})
	}
	ask := envoyClient(t, grpcAddress, credentials.NewTLS(c.Config("")))
	expect := func(user, want string) {
		t.Helper()
		if got, err := ask(user); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", user, got, err, want)
		}
	}
	health("there are no rules yet, and everything is allowed")
	expect("a", "OK")
	server.Start(t) // it was away until now
	server.Set(t, "1", policyOf(2))
	server.Accepted(t, "1")
	expect("a", "OK")
	expect("a", "OK")
	expect("a", "OVER_LIMIT")

	server.Set(t, "2", policyOf(1), &rlsconf.RateLimitConfig{Name: "team/route", Domain: "team/route", Descriptors: []*rlsconf.RateLimitDescriptor{{Value: "v"}}})
	if detail := server.Refused(t).GetErrorDetail().GetMessage(); !strings.Contains(detail, "team/route: descriptors[0].key: descriptor has empty key") {
		t.Errorf("refused because of %q", detail)
	}
	health("team/route: descriptors[0].key: descriptor has empty key")
	expect("b", "OK")
	expect("b", "OK") // the limit is still 2
	expect("b", "OVER_LIMIT")

	before := time.Now()
	server.Set(t, "3", policyOf(1))
	server.Accepted(t, "3")
	expect("c", "OK")
	expect("c", "OVER_LIMIT")
	if code, body, err := get(t, url+"/rlconfig"); err != nil || code != http.StatusOK || !strings.Contains(body, "default/eg/http.user: unit=YEAR requests_per_unit=1") {
		t.Errorf("/rlconfig: %d %s, %v", code, body, err)
	}
	if code, body, err := get(t, "http://"+admin+"/metrics"); err != nil || code != http.StatusOK || !strings.Contains(body, "weir_xds_connected 1") {
		t.Errorf("/metrics: %d, %v", code, err)
	}
	if took := time.Since(before); took > time.Second && !testform.RaceEnabled {
		t.Errorf("a change was in force after %v", took)
	}
	server.Stop()
	health("there is no stream to the xDS server")
	expect("d", "OK")
	expect("d", "OVER_LIMIT")
	if got, err := envoyClient(t, grpcAddress, insecure.NewCredentials())("e"); err == nil {
		t.Errorf("without TLS: %s", got)
	}
	knowsItsVariables(t, log())
	stop()
}

// Nodes of a cluster with the same server hold a limit together. A node does not serve before rules have come.
func TestClusterByXDS(t *testing.T) {
	testform.NotInBrief(t)
	server := xdstest.New(t, nil)
	host := process.Host(t)
	address := freeAddressOn(t, host)
	_, stop := startRatelimit(t, "HOST="+host, "PORT="+port(t, address), "GRPC_HOST="+host, "GRPC_PORT=0", "WEIR_ETCD_LISTEN="+host+":0",
		"CONFIG_TYPE=GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL="+server.Address, "CONFIG_GRPC_XDS_NODE_ID="+xdstest.NodeID,
		"XDS_CLIENT_BACKOFF_INITIAL_INTERVAL=100ms", "WEIR_DATA_DIR="+t.TempDir())
	url := "http://" + address
	expectCode(t, url+"/healthz", http.StatusOK)
	process.Await(t, process.Patience, func() error {
		_, body, err := get(t, url+"/v1/health")
		if err == nil && !strings.Contains(body, "this node does not serve before there are") {
			err = fmt.Errorf("health is %s", body)
		}
		return err
	})
	expectCode(t, url+"/readyz", http.StatusServiceUnavailable)
	process.Await(t, process.Patience, func() error {
		_, body, err := get(t, url+"/v1/nodes")
		switch {
		case err == nil && !strings.Contains(body, `"member":true`):
			err = fmt.Errorf("no member in %s", body)
		case err == nil && !strings.Contains(body, "JOINING"):
			t.Errorf("a member that waits for its rules is listed as %s", body)
		}
		return err
	})
	if _, body, err := get(t, url+"/v1/health"); err != nil || strings.Contains(body, `"ready":true`) {
		t.Errorf("a node that waits for its rules has the health %s, %v", body, err)
	}
	expectCode(t, url+"/healthcheck", http.StatusInternalServerError)
	expectCode(t, url+"/auth", http.StatusServiceUnavailable) // without rules all would be allowed
	post := func(path, body string) int {
		resp, err := http.Post(url+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	const one = `{"identifier_type":"user","identifier":"alice"}`
	for path, body := range map[string]string{"/v1/check": one, "/v1/check:batch": `{"requests":[` + one + `]}`, "/json": `{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}`} {
		if code := post(path, body); code < 500 {
			t.Errorf("%s is answered with %d without rules", path, code)
		}
	}
	server.Start(t)
	server.Set(t, "1", policyOf(4))
	expectCode(t, url+"/readyz", http.StatusOK)
	expectCode(t, url+"/auth", http.StatusOK)
	if code := post("/v1/check", one); code != http.StatusOK {
		t.Errorf("/v1/check is answered with %d with rules", code)
	}
	expectCode(t, url+"/healthcheck", http.StatusOK)
	stop()
	how := []string{"--xds-server", server.Address, "--xds-node-id", xdstest.NodeID, "--peer-timeout", "4s"}
	a := process.Start(t, how...)
	b := process.Start(t, append(how, "--etcd", a.Etcd)...)
	process.AwaitMembers(t, process.Patience, a, b)
	askA, askB := envoyClient(t, a.GRPC, insecure.NewCredentials()), envoyClient(t, b.GRPC, insecure.NewCredentials())
	for i, ask := range []func(string) (string, error){askA, askB, askB, askA, askB, askA} {
		want := "OK"
		if i >= 4 {
			want = "OVER_LIMIT"
		}
		if got, err := ask("one"); err != nil || got != want {
			t.Errorf("request %d: %s, %v, want %s", i, got, err, want)
		}
	}
	for _, n := range []*process.Node{a, b} {
		if _, body, err := get(t, "http://"+n.HTTP+"/v1/health"); err != nil || strings.Contains(body, "other rules") {
			t.Errorf("%s: %s, %v", n.ID, body, err)
		}
	}
	code, output := weirRules(t, b, descriptorFile, "apply", "-f", "-")
	if code != 1 && code != 2 || !strings.Contains(output, "takes them from the xDS server") {
		t.Errorf("rules applied to a node by xDS: exit code %d\n%s", code, output)
	}

	// A node that is started again while the server is away has the rules that it had.
	b.Kill()
	server.Stop()
	b.Restart()
	process.AwaitMembers(t, process.Patience, a, b)
	expectCode(t, "http://"+b.HTTP+"/readyz", http.StatusOK)
	process.Await(t, process.Patience, func() error {
		if why := reasons(b); !strings.Contains(why, "this node has started from the rules that the xDS server "+server.Address+" sent before") {
			return fmt.Errorf("health says %q", why)
		}
		return nil
	})
	if got, err := envoyClient(t, b.GRPC, insecure.NewCredentials())("one"); err != nil || got != "OVER_LIMIT" {
		t.Errorf("a node that was started without the server decides %s, %v", got, err)
	}
	server.Start(t)
	server.Set(t, "1", policyOf(4))
	process.Await(t, process.Patience, func() error {
		if why := reasons(b); strings.Contains(why, "xDS") {
			return fmt.Errorf("the server is back, and health says %q", why)
		}
		return nil
	})
}
