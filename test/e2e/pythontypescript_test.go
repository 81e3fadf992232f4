package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const clients = "../../client"

// The client for Python does what its tests say, against a real node.
func TestPythonClient(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	python := findProgram(t, "python3")
	runClient(t, filepath.Join(clients, "python"), startForClients(t), python, pythonTests("test_weirlimit.py")...)
}

// It does so against nodes with TLS, with a certificate or a token.
func TestPythonClientWithTLS(t *testing.T) {
	testform.NotInBrief(t)
	t.Parallel()
	python := findProgram(t, "python3")
	runClient(t, filepath.Join(clients, "python"), startSecuredForClients(t), python, pythonTests("test_tls.py")...)
}

// pythonTests returns the arguments of Python that run the tests in a file.
func pythonTests(file string) []string {
	return []string{"-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-p", file}
}

// The packages have the license of the whole.
func TestClientsHaveTheLicense(t *testing.T) {
	want, err := os.ReadFile("../../LICENSE")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"python", "typescript"} {
		if got, err := os.ReadFile(filepath.Join(clients, dir, "LICENSE")); err != nil || !bytes.Equal(got, want) {
			t.Errorf("client/%s/LICENSE is not that of the project: %v", dir, err)
		}
	}
}

// The client for Node.js and its middleware for Express do what their tests say, against a real node.
func TestTypeScriptClient(t *testing.T) {
	t.Parallel()
	npm := findProgram(t, "npm")
	runClient(t, copyTypeScript(t), startForClients(t), npm, "test")
}

// It does so against nodes with TLS, with a certificate or a token.
func TestTypeScriptClientWithTLS(t *testing.T) {
	t.Parallel()
	npm := findProgram(t, "npm")
	runClient(t, copyTypeScript(t), startSecuredForClients(t), npm, "run", "test-tls")
}

// block returns what a page has between the first ``` of a kind and the next one.
func block(t *testing.T, page, kind string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n```"+kind+"\n")
	code, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("%s has no %s", page, kind)
	}
	return code
}

// pageRules writes a file with the rules of a page, without windows of a day: around the edge of one the
// limit allows one more.
func pageRules(t *testing.T, page string) string {
	t.Helper()
	return writeRules(t, strings.ReplaceAll(block(t, page, "yaml"), "window: 1m", "window: 1d"))
}

// The first example of docs/python.md prints what the page says.
func TestPythonPage(t *testing.T) {
	t.Parallel()
	python := findProgram(t, "python3")
	dir := t.TempDir()
	n := process.Start(t, "--rules", pageRules(t, "python.md"))
	app := strings.Replace(block(t, "python.md", "python"), "127.0.0.1:8080", n.HTTP, 1)
	app = strings.Replace(app, `8081")`, `8081", timeout=20)`, 1) // of a busy machine
	if err := os.WriteFile(filepath.Join(dir, "app.py"), []byte(app), 0o600); err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join(clients, "python", "src"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", "app.py")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "PYTHONPATH="+source)
	out, err := cmd.CombinedOutput()
	if lines := strings.Split(string(out), "\n"); err != nil || len(lines) != 12 || lines[9] != "alice posts 9" || !strings.HasPrefix(lines[10], "come back in ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Likewise docs/typescript.md.
func TestTypeScriptPage(t *testing.T) {
	t.Parallel()
	npm := findProgram(t, "npm")
	dir := copyTypeScript(t)
	n := process.Start(t, "--rules", pageRules(t, "typescript.md"))
	listen := freeAddress(t)
	_, port, _ := strings.Cut(listen, ":")
	server := strings.Replace(block(t, "typescript.md", "ts"), "127.0.0.1:8080", n.HTTP, 1)
	server = strings.Replace(server, `8081"]`, `8081"], { timeout: 20000 }`, 1) // of a busy machine
	server = strings.Replace(server, "listen(8000)", "listen("+port+")", 1)
	if err := os.WriteFile(filepath.Join(dir, "server.ts"), []byte(server), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"run", "build"},
		// The package finds itself by its name.
		{"exec", "--", "tsc", "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "server.ts"},
	} {
		cmd := exec.Command(npm, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("npm %v: %v\n%s", args, err, out)
		}
	}
	cmd := exec.Command(findProgram(t, "node"), "server.js")
	cmd.Dir = dir
	startProxy(t, listen, cmd)
	for i := range 11 {
		r := gateway("http://"+listen).post(t, "/nothing") // which is limited before it is a 404
		if want := map[bool]int{true: http.StatusNotFound, false: http.StatusTooManyRequests}[i < 10]; r.code != want {
			t.Errorf("request %d: %v", i, r)
		}
		expect(t, r, "RateLimit", `^"strangers";r=\d+;t=\d+$`)
	}
}

// copyTypeScript copies the client for Node.js to a directory of its own, since building it adds files to
// its directory, and adds the modules that it needs.
func copyTypeScript(t *testing.T) string {
	t.Helper()
	source, dir := filepath.Join(clients, "typescript"), t.TempDir()
	for _, name := range []string{"src", "test"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(source, name))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"package.json", "tsconfig.json", "tsconfig.build.json"} {
		content, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	modules, err := filepath.Abs(filepath.Join(source, "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		skip(t, "client/typescript/node_modules is not there; .ci/run makes it, by npm ci")
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// startForClients starts three nodes with the rules of all clients, and returns the environment of their tests.
func startForClients(t *testing.T) []string {
	t.Helper()
	// Nodes are patient with each other: what is tested is the client.
	_, nodes := startThreeWith(t, "--rules", filepath.Join(clients, "test-rules.yaml"), "--peer-timeout", "5s")
	n, all := nodes[0], nodes[0].HTTP+","+nodes[1].HTTP+","+nodes[2].HTTP
	return []string{"WEIR_HTTP=" + n.HTTP, "WEIR_GRPC=" + n.GRPC, "WEIR_NODES=" + all}
}

// startSecuredForClients is startForClients for two nodes with TLS.
func startSecuredForClients(t *testing.T) []string {
	t.Helper()
	p, foreign := process.NewCertificates(t, "127.0.0.1"), process.NewCertificates(t, "127.0.0.1")
	for client, role := range map[string]string{"checks": "check", "scrapes": "metrics"} {
		p.Make("client", client, "--role", role)
	}
	foreign.Make("client", "checks", "--role", "check")
	token, err := exec.CommandContext(t.Context(), process.Binary(t), "tokens", "create", "checks", "--role", "check", "--file", p.File("tokens")).Output()
	if err != nil {
		t.Fatal(err)
	}
	etcd := process.StartEtcd(t)
	args := []string{"--etcd", etcd.Endpoint, "--rules", filepath.Join(clients, "test-rules.yaml"), "--peer-timeout", "5s", "--tokens", p.File("tokens")}
	a, b := p.Start("a", args...), p.Start("b", args...)
	process.AwaitMembers(t, process.Patience, a, b)
	return []string{
		"WEIR_NODES=" + a.HTTP + "," + b.HTTP, "WEIR_GRPC=" + a.GRPC, "WEIR_TOKEN=" + strings.TrimSpace(string(token)),
		"WEIR_CERTS=" + p.Dir, "WEIR_FOREIGN_CERTS=" + foreign.Dir,
	}
}

// runClient runs the tests of a client, which are in dir.
func runClient(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(append(os.Environ(), "PYTHONPATH=src"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
