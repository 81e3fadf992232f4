package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
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
	dir := copyExample(t, "typescript", "package.json", "tsconfig.json", "weir.ts", "weir.test.ts")
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
	runExample(t, dir, npm, "test")
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
