package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// Lines of a process's status that Memory reads.
const (
	Resident     = "VmRSS" // now
	MostResident = "VmHWM" // since the start
)

// Memory returns a number of MiB from a process's status: the line of that name. It skips the test where the system has no such
// status.
func Memory(t testing.TB, pid int, line string) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("memory is measured on Linux only")
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), line+":")
	kib, err := strconv.Atoi(strings.Fields(rest + " -")[0])
	if err != nil {
		t.Fatalf("process %d: %s: %v", pid, line, err)
	}
	return kib >> 10
}

// Written returns how many bytes a process has written so far, to files and connections; 0 where the system does not count them.
func Written(t testing.TB, pid int) (bytes int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "wchar: ")
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		t.Fatalf("process %d: %q: %v", pid, text, err)
	}
	return bytes
}
