package linear

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/weirlimit/weir/internal/testform"
)

// turns is how long clients ask for keys whose windows end, or whose tokens flow back, meanwhile.
const turns = 14 * time.Second

// askWhileTurning has clients ask for keys whose decisions change with time, as often as leaves some of their checks room.
func askWhileTurning(t *testing.T, name string, all []*kind, deciders ...decider) *load {
	t.Helper()
	l := newLoad(name, all, deciders...)
	l.every = 10 * tick
	if l.bursts = name == "logging"; l.bursts {
		l.refunds = false // the search among checks at the same instants takes too long with them
		defer l.dropLate(t)
	}
	l.start(t)
	wait(turns)
	l.stop()
	l.allDecided(t)
	if share := float64(l.allowed) / float64(l.checks); share < 0.2 || share > 0.98 {
		t.Errorf("%s: %.0f %% of %d checks were allowed", name, 100*share, l.checks)
	}
	return l
}

// dropLate drops histories with a check that was not decided within its burst, as on a machine that is busy. It fails the test if few stay.
func (r *record) dropLate(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	all := len(r.histories)
	r.histories = slices.DeleteFunc(r.histories, func(h *history) bool {
		return slices.ContainsFunc(h.ops, func(o porcupine.Operation) bool {
			c := o.Input.(check)
			since := sinceBurst(c.from)
			return since < burstBegins/2 || since+time.Duration(c.to-c.from) > burstGrace-clockError
		})
	})
	if kept := len(r.histories); kept*2 < all {
		t.Errorf("%d of %d histories have only checks that were answered in time", kept, all)
	}
}

// Histories are linearizable across the ends of windows, of those algorithms whose decisions change at known
// instants only, while the tokens of meters flow back, and while grants leave a log.
func TestTurningWindows(t *testing.T) {
	testform.NotWhileRacing(t)
	form.FullOnly(t)
	s := newStage(t, slices.Concat(turning(), draining(), logging()), nil)
	eachThatTurns(t, func(t *testing.T, name string, all []*kind) { askWhileTurning(t, name, all, s.deciders()...).verify(t) })
}

// eachThatTurns has do ask for each set of kinds whose decisions change with time.
func eachThatTurns(t *testing.T, do func(t *testing.T, name string, all []*kind)) {
	t.Helper()
	t.Run("turning", func(t *testing.T) { do(t, "turning", turning()) })
	t.Run("draining", func(t *testing.T) { do(t, "draining", draining()) })
	t.Run("logging", func(t *testing.T) { do(t, "logging", logging()) })
}

// The checker finds bugs across the ends of windows and while tokens flow back, too.
func TestCheckerFindsBugsInTurningWindows(t *testing.T) {
	form.FullOnly(t)
	eachThatTurns(t, func(t *testing.T, name string, all []*kind) {
		found(t, askWhileTurning(t, name, all, newBug(t, forget)), all)
	})
}
