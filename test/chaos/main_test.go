package chaos

import (
	"flag"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
	"github.com/weirlimit/weir/test/process"
)

// The tests run in real time, each for half a minute or so: the faults are those of processes, sockets and the kernel's
// network, and their end is seen when leases of a real etcd have ended. test/sim has the same faults in virtual time.

var form = testform.NewForm("chaos", "take the time of the full form, several minutes")

// peerTimeout is how long every node waits for another. The default of 25 ms would do on a machine that has
// nothing else to do. On one without enough processors late checks are decided by standbys, or allowed by
// the failure policy: neither must be mistaken for a fault.
var peerTimeout = flag.Duration("peer-timeout", 4*time.Second, "of the nodes")

// atOnce is how many tests of the short form run at once. Each uses a third of one processor.
const atOnce = 2

func TestMain(m *testing.M) {
	process.Parallel(atOnce)
	process.Main(m)
}

// shareMachine has a test of the short form run at the same time as another one. A test has the machine for itself if what it sees
// comes near to what is promised, and so has each test of the full form, of which docs/reference/faults.md has the figures.
func shareMachine(t *testing.T) {
	t.Helper()
	if !form.Full() {
		t.Parallel()
	}
}

// notInBrief skips a test of both forms unless all tests are to run: go test ./... takes the death of an owner for all
// faults.
func notInBrief(t *testing.T) {
	t.Helper()
	form.NotInBrief(t)
}

// brief returns what the short form uses instead of the value of the full form.
func brief[T any](inFull, inShort T) T {
	if form.Full() {
		return inFull
	}
	return inShort
}
