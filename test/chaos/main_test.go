package chaos

import (
	"flag"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

var full = flag.Bool("full", false, "take the time of the full form, several minutes")

// peerTimeout is how long every node waits for another. The default of 25 ms would do on a machine
// that has nothing else to do. On one without enough processors answers come late, and what is
// late is decided by standbys, or let through: nothing of that is to be mistaken for a fault.
var peerTimeout = flag.Duration("peer-timeout", 4*time.Second, "of the nodes")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}

// notWhileRacing skips a test whose load would be too much for nodes with the race detector.
func notWhileRacing(t *testing.T) {
	t.Helper()
	if process.RaceEnabled {
		t.Skip("the race detector makes nodes too slow; test/e2e has it")
	}
}

// inFullOnly skips a test in the short form: that is for the faults that show most in little time.
func inFullOnly(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("in the full form only: make chaos")
	}
}

// brief returns what the short form uses instead of the value of the full form.
func brief[T any](inFull, inShort T) T {
	if *full {
		return inFull
	}
	return inShort
}
