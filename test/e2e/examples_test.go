package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

const clientExamples = "../../client/examples"

// The client for Python does what its tests say, against a real node.
func TestPythonExample(t *testing.T) {
	python := findProgram(t, "python3")
	dir := copyExample(t, "python", "weir.py", "test_weir.py")
	runExample(t, dir, python, "-B", "-W", "error", "-m", "unittest")
}

// The middleware for Express does what its tests say, against a real node.
func TestTypeScriptExample(t *testing.T) {
	npm := findProgram(t, "npm")
	dir := copyTypeScript(t, "package.json", "tsconfig.json", "weir.ts", "weir.test.ts")
	runExample(t, dir, npm, "test")
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

// pageRules writes a file with the rules of a page, but for windows of a day: around the edge of
// one the limit lets one more through.
func pageRules(t *testing.T, page string) string {
	t.Helper()
	return writeRules(t, strings.ReplaceAll(block(t, page, "yaml"), "window: 1m", "window: 1d"))
}

// Who pastes what docs/python.md begins with sees what it says.
func TestPythonPage(t *testing.T) {
	t.Parallel()
	python := findProgram(t, "python3")
	dir := copyExample(t, "python", "weir.py")
	n := process.Start(t, "--rules", pageRules(t, "python.md"))
	app := strings.Replace(block(t, "python.md", "python"), "127.0.0.1:8080", n.HTTP, 1)
	app = strings.Replace(app, `8081")`, `8081", timeout=20)`, 1) // of a busy machine
	if err := os.WriteFile(filepath.Join(dir, "app.py"), []byte(app), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, "-B", "app.py")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if lines := strings.Split(string(out), "\n"); err != nil || len(lines) != 12 || lines[9] != "alice posts 9" || !strings.HasPrefix(lines[10], "come back in ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// Likewise docs/typescript.md.
func TestTypeScriptPage(t *testing.T) {
	t.Parallel()
	npm := findProgram(t, "npm")
	dir := copyTypeScript(t, "package.json", "tsconfig.json", "weir.ts")
	n := process.Start(t, "--rules", pageRules(t, "typescript.md"))
	listen := freeAddress(t)
	_, port, _ := strings.Cut(listen, ":")
	server := strings.Replace(block(t, "typescript.md", "ts"), "127.0.0.1:8080", n.HTTP, 1)
	server = strings.Replace(server, `8081"]`, `8081"], { timeout: 20000 }`, 1) // of a busy machine
	server = strings.Replace(server, "listen(8000)", "listen("+port+")", 1)
	if err := os.WriteFile(filepath.Join(dir, "server.ts"), []byte(server), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(npm, "exec", "--", "tsc")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd = exec.Command(findProgram(t, "node"), "dist/server.js")
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

// copyTypeScript is copyExample with the modules that it needs.
func copyTypeScript(t *testing.T, files ...string) string {
	t.Helper()
	dir := copyExample(t, "typescript", files...)
	modules, err := filepath.Abs(filepath.Join(clientExamples, "typescript", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		skip(t, "client/examples/typescript/node_modules is not there; .ci/run makes it, by npm ci")
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// copyExample copies files of an example to a directory of its own, since to run them
// writes others beside them.
func copyExample(t *testing.T, name string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(clientExamples, name, file))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runExample runs the tests of an example against a node with the rules of all examples.
func runExample(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	rules, err := os.ReadFile(filepath.Join(clientExamples, "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	n := process.Start(t, "--rules", writeRules(t, string(rules)))
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), "WEIR_HTTP="+n.HTTP), time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
