package process

import (
	"fmt"
	"io"
	"net/http"
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

// Metric returns the value of a node's metric that has no labels.
func (n *Node) Metric(t testing.TB, name string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	if !found {
		t.Fatalf("%s has no metric %s", n.ID, name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	value, err := strconv.ParseFloat(line, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}
