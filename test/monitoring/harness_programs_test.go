package monitoring

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

func TestMain(m *testing.M) { process.Main(m) }

const root = "../../"

// program returns where a program of Debian's package prometheus is, in $PROM_BIN or else in $PATH. Without it, it skips
// the test, unless all tests must run.
func program(t *testing.T, name string) string {
	t.Helper()
	path := name
	if dir := os.Getenv("PROM_BIN"); dir != "" {
		path = filepath.Join(dir, name)
	}
	found, err := exec.LookPath(path)
	if err == nil {
		return found
	}
	const why = "no %s: put one into $PATH, or its directory into $PROM_BIN; .ci/run has it from Debian's package prometheus: %v"
	if testform.AllTests() {
		t.Fatalf(why, name, err)
	}
	t.Skipf(why, name, err)
	return ""
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
