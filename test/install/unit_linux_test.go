package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

const unitFile = "../../deploy/systemd/weir.service"

// mostExposed is the level of systemd-analyze security that the unit stays below, of 10.
const mostExposed = 1.5

// program returns the path of a program. The test is skipped if it is not there, unless all are to run.
func program(t *testing.T, name, from string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		if testform.AllTests() {
			t.Fatal(err)
		}
		t.Skipf("%s is not there: %s has it", name, from)
	}
	return path
}

// TestUnitIsHardened: systemd itself finds nothing wrong with the unit, and finds it hardened.
func TestUnitIsHardened(t *testing.T) {
	analyze := program(t, "systemd-analyze", "Debian's package systemd")
	text, err := os.ReadFile(unitFile)
	if err != nil {
		t.Fatal(err)
	}
	// verify looks for the program where the unit says.
	unit := filepath.Join(t.TempDir(), "weir.service")
	text = []byte(strings.Replace(string(text), "/usr/bin/weir", process.Binary(t), 1))
	if err := os.WriteFile(unit, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(analyze, "verify", "--man=no", unit).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager", unit).CombinedOutput()
	if err != nil {
		t.Fatalf("systemd-analyze security: %v\n%s", err, out)
	}
	level := regexp.MustCompile(`Overall exposure level for weir\.service: ([\d.]+)`).FindSubmatch(out)
	if level == nil {
		t.Fatalf("no level in\n%s", out)
	}
	if n, err := strconv.ParseFloat(string(level[1]), 64); err != nil || n >= mostExposed {
		t.Errorf("exposure %s, want below %v\n%s", level[1], mostExposed, out)
	}
}
