package chaos

import (
	"flag"
	"testing"
	"time"

	"github.com/weirlimit/weir/test/process"
)

var (
	form  = process.NewForm("chaos", "take the time of the full form, several minutes")
	every = flag.Bool("every", false, "test every fault of the short form, two minutes")
)

// peerTimeout is how long every node waits for another. The default of 25 ms would do on a machine that has
// nothing else to do. On one without enough processors late checks are decided by standbys, or allowed by
// the failure policy: neither must be mistaken for a fault.
var peerTimeout = flag.Duration("peer-timeout", 4*time.Second, "of the nodes")

func TestMain(m *testing.M) {
	flag.Parse()
	process.Main(m)
}

// notInBrief skips a test unless every fault is to be tested: go test ./... takes the death of the owner and a split for
// all of them.
func notInBrief(t *testing.T) {
	t.Helper()
	if !form.Full() && !*every {
		t.Skip("with -every only; .ci/run does that")
	}
}

// brief returns what the short form uses instead of the value of the full form.
func brief[T any](inFull, inShort T) T {
	if form.Full() {
		return inFull
	}
	return inShort
}
