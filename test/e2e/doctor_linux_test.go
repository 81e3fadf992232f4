package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlimit/weir/test/process"
)

// machineFindings are how weir doctor begins what it says of this machine's clock and huge pages, as the kernel tells the test too.
func machineFindings(t *testing.T) []string {
	t.Helper()
	clock, pages := "ok clock the kernel says that this machine's clock is synchronized\n", "ok huge pages the kernel gives transparent huge pages\n"
	switch state, err := unix.Adjtimex(new(unix.Timex)); {
	case err != nil:
		t.Fatal(err)
	case state == unix.TIME_ERROR:
		clock = "warning clock the kernel says that this machine's clock is not synchronized; to do: run an NTP client"
	}
	switch text, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled"); {
	case err != nil:
		pages = "warning huge pages the kernel has no transparent huge pages: "
	case strings.Contains(string(text), "[never]"):
		pages = "warning huge pages transparent huge pages are off: "
	}
	return []string{clock, pages}
}

// weir doctor judges what the machine gives to a node: file descriptors, memory, huge pages and a clock.
func TestDoctorJudgesTheMachine(t *testing.T) {
	t.Parallel()
	args := []string{"--id", "a", "--grpc", freeAddress(t), "--http", freeAddress(t), "--etcd-listen", freeAddress(t), "--data-dir", filepath.Join(t.TempDir(), "data")}
	files := regexp.MustCompile(`\n(ok|warning) file descriptors (this user's processes may have \d+ open|as many may be open)`)
	const rest = `, and all else up to 512MiB; the memory (of this machine|limit of this control group) is [0-9.]+[MGT]iB`
	for _, tc := range []struct {
		memory string
		code   int
		want   *regexp.Regexp
	}{
		{"8MiB", 0, regexp.MustCompile(`\n(ok|warning) counter-memory counters may take 8\.0MiB` + rest)},
		{"4TiB", 1, regexp.MustCompile(`\nerror counter-memory counters may take 4\.0TiB` + rest + `; to do: lower --counter-memory, or give the node more memory`)},
	} {
		out, code := doctor(t, append(args, "--counter-memory", tc.memory)...)
		if code != tc.code || !tc.want.MatchString(out) || !files.MatchString(out) {
			t.Errorf("--counter-memory %s: exit code %d, want %d, %v and %v:\n%s", tc.memory, code, tc.code, tc.want, files, out)
		}
		for _, line := range machineFindings(t) {
			if !strings.Contains(out, "\n"+line) {
				t.Errorf("--counter-memory %s: %q is missing:\n%s", tc.memory, line, out)
			}
		}
	}
}

// In JSON, each finding that is not ok has its advice, and no other has one.
func TestDoctorAdvisesInJSON(t *testing.T) {
	t.Parallel()
	args := []string{"-c", `ulimit -n 512; exec "$@"`, "bash", process.Binary(t), "doctor", "--id", "a", "--grpc", freeAddress(t), "--http", freeAddress(t),
		"--etcd-listen", freeAddress(t), "--data-dir", filepath.Join(t.TempDir(), "data"), "--counter-memory", "4TiB", "--json"}
	out, err := exec.CommandContext(t.Context(), "bash", args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	type finding struct{ Severity, Subject, Text, Advice string }
	var report struct{ Findings []finding }
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range report.Findings {
		if (f.Severity == "ok") != (f.Advice == "") {
			t.Errorf("%+v: only what is not ok is to have advice", f)
		}
	}
	for subject, want := range map[string]finding{
		"file descriptors": {"error", "", "may have 512 open", "raise the limit to 16384 or more: LimitNOFILE= of the unit, or ulimit -n"},
		"counter-memory":   {"error", "", "counters may take 4.0TiB", "lower --counter-memory, or give the node more memory"},
	} {
		i := slices.IndexFunc(report.Findings, func(f finding) bool { return f.Subject == subject })
		if i < 0 || report.Findings[i].Severity != want.Severity || !strings.Contains(report.Findings[i].Text, want.Text) || !strings.HasPrefix(report.Findings[i].Advice, want.Advice) {
			t.Errorf("no finding of %s is %+v:\n%s", subject, want, out)
		}
	}
}
