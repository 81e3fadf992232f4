package ownership

import (
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
)

// Nodes join and leave under load: each counter moves with its partition, and no token is granted twice or lost.
func TestJoinsAndLeavesAreExact(t *testing.T) {
	for seed := range uint64(3) {
		runWorld(t, seed, func(w *nodeWorld) {
			a := w.start("a", 1)
			w.awaitSettled()
			stop := make(chan struct{})
			c := w.load(stop)
			w.start("b", 1)
			w.awaitSettled()
			w.start("c", 1)
			w.start("d", 1)
			w.awaitSettled()
			w.leave(a)
			w.awaitSettled()
			close(stop)
			over, under := w.finish(c)
			t.Logf("seed %d: %d views, %s", seed, w.views, time.Since(a.started))
			if over != 0 || under != 0 || c.undecided.Load() != 0 || c.provisional.Load() != 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d undecided, %d provisional", seed, over, under, c.undecided.Load(), c.provisional.Load())
			}
		})
	}
}

// A node gives the final state of a partition once, not after each further view: it is all counters.
func TestFinalStatesAreGivenOnce(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		w.start("a", 1)
		w.awaitSettled()
		w.start("b", 1)
		w.awaitSettled()
		for _, id := range []string{"c", "d"} { // views of which each changes some partitions, and names the predecessors of all
			w.start(id, 1)
			w.awaitSettled()
		}
		t.Logf("%d views: %+v", w.views, w.finals)
		if w.finals.taken < w.params.Partitions/2 || w.finals.useless > w.finals.taken/10 {
			t.Errorf("final states: %+v", w.finals)
		}
	})
}

// leave has a node leave: it ends once nothing is owed to others.
func (w *nodeWorld) leave(x *worldNodeRun) {
	w.t.Helper()
	if owed := w.leaveWithin(x, 20*time.Second); owed > 0 {
		w.t.Fatalf("after 20 s, %d partitions are owed", owed)
	}
	w.wait(time.Second)
	w.kill(x)
}

// leaveWithin has views take a node's partitions for a while, then says that it has left. It returns in how many partitions the node still owes something.
func (w *nodeWorld) leaveWithin(x *worldNodeRun, patience time.Duration) (owed int) {
	const look = 50 * time.Millisecond
	w.setWish(x.Self, view.Leaving)
	for range patience / look {
		w.wait(look)
		if owed = x.Owed(); owed == 0 {
			break
		}
	}
	w.setWish(x.Self, view.Left)
	return owed
}

func (w *nodeWorld) setWish(l view.Life, s view.State) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wishes[l] = s
}
