package process

import (
	"bytes"
	"fmt"
	"os"
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
