package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// ticksPerSecond is the unit of /proc/PID/stat; Linux has had it fixed for long.
const ticksPerSecond = 100

// CPU returns the user and system time that a process has used, to 10 ms.
func CPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// The second field is a name in parentheses that may contain anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	var ticks int64
	for _, f := range fields[11:13] { // utime and stime
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// Waited returns how long the threads of a process have waited for a processor that they were ready
// to run on, as the kernel's scheduler counts it; 0 where it does not.
func Waited(t testing.TB, pid int) (sum time.Duration) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		var ran, waited int64
		if _, err := fmt.Sscan(string(b), &ran, &waited); err != nil {
			t.Fatalf("%s: %q: %v", name, b, err)
		}
		sum += time.Duration(waited)
	}
	return sum
}
