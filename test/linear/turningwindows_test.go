package linear

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/testform"
)

// turns is how long clients ask for keys whose windows end meanwhile.
const turns = 14 * time.Second

// askWhileTurning has clients ask for keys whose windows end, as often as leaves some of their checks room.
func askWhileTurning(t *testing.T, deciders ...decider) *load {
	t.Helper()
	l := newLoad("turning", turning(), deciders...)
	l.every = 10 * tick
	l.start(t)
	wait(turns)
	l.stop()
	l.allDecided(t)
	return l
}

// Histories are linearizable across the ends of windows, of those algorithms whose decisions change at known
// instants only.
func TestTurningWindows(t *testing.T) {
	testform.NotWhileRacing(t)
	form.FullOnly(t)
	s := newStage(t, turning(), nil)
	askWhileTurning(t, s.deciders()...).verify(t)
}

// The checker finds bugs across the ends of windows, too.
func TestCheckerFindsBugsInTurningWindows(t *testing.T) {
	form.FullOnly(t)
	found(t, askWhileTurning(t, newBug(t, forget)), turning())
}
