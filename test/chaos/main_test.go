package chaos

import (
	"flag"
	"testing"

	"github.com/weirlimit/weir/test/process"
)

var full = flag.Bool("full", false, "take the time of the full form, several minutes")

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
