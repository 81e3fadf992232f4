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
			if over != 0 || under != 0 || c.unanswered.Load() != 0 || c.provisional.Load() != 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d unanswered, %d provisional", seed, over, under, c.unanswered.Load(), c.provisional.Load())
			}
		})
	}
}

// leave has a node leave: it ends once nothing is owed to others.
func (w *nodeWorld) leave(x *worldNodeRun) {
	w.t.Helper()
	w.mu.Lock()
	w.wishes[x.Self] = view.Leaving
	w.mu.Unlock()
	for range 400 {
		w.wait(50 * time.Millisecond)
		if x.Owed() == 0 {
			break
		}
	}
	if owed := x.Owed(); owed > 0 {
		w.t.Fatalf("after 20 s, %d partitions are owed", owed)
	}
	w.mu.Lock()
	w.wishes[x.Self] = view.Left
	w.mu.Unlock()
	w.wait(time.Second)
	w.kill(x)
}
