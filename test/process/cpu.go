package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the user and system time that all threads of a process have used.
func CPU(t testing.TB, pid int) time.Duration {
	t.Helper()
	const timeOfThreads = 2
	clock := int32(^pid<<3 | timeOfThreads) // as clock_getcpuclockid(3) has it
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		t.Fatalf("processor time of process %d: %v", pid, err)
	}
	return time.Duration(used.Nano())
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
