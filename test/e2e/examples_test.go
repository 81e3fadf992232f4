package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

const examples = "../../client/examples"

// The client for Python does what its tests say, against a real node.
func TestPythonExample(t *testing.T) {
	python := tool(t, "python3", "Python 3.9 or later")
	dir := copyExample(t, "python", "weir.py", "test_weir.py")
	runExample(t, dir, python, "-B", "-W", "error", "-m", "unittest")
}

// The middleware for Express does what its tests say, against a real node.
func TestTypeScriptExample(t *testing.T) {
	npm := tool(t, "npm", "Node.js 18 or later, with npm")
	dir := copyExample(t, "typescript", "package.json", "tsconfig.json", "weir.ts", "weir.test.ts")
	modules, err := filepath.Abs(filepath.Join(examples, "typescript", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(modules); err != nil {
		missing(t, "npm ci in client/examples/typescript")
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	runExample(t, dir, npm, "test")
}

// tool returns the path of a program, or skips the test.
func tool(t *testing.T, name, needs string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, needs)
	}
	return path
}

// missing skips the test, but where all must be there.
func missing(t *testing.T, needs string) {
	t.Helper()
	if os.Getenv("WEIR_TEST_ALL") != "" {
		t.Fatalf("needs %s", needs)
	}
	t.Skipf("needs %s", needs)
}

// copyExample copies files of an example to a directory of its own, since to run them
// writes others beside them.
func copyExample(t *testing.T, name string, files ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(examples, name, file))
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
	rules, err := os.ReadFile(filepath.Join(examples, "rules.yaml"))
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
