package ownership

import (
	"testing"
	"time"
)

// An owner dies under load. Its standby has all but the last moments of it, and decides from its copy until it is owner.
func TestPromotion(t *testing.T) {
	for seed := range uint64(3) {
		runWorld(t, seed, func(w *nodeWorld) {
			w.start("a", 1)
			b := w.start("b", 1)
			w.start("c", 1)
			w.awaitSettled()
			stop := make(chan struct{})
			c := w.load(stop)
			w.wait(time.Second)
			w.kill(b)
			w.wait(100 * time.Millisecond)
			w.awaitSettled()
			w.start("b", 2)
			w.awaitSettled()
			close(stop)
			over, under := w.finish(c)
			t.Logf("seed %d: %d views, %d provisional, %d tokens over, %d under", seed, w.views, c.provisional.Load(), over, under)
			if over > 10 || under > 10 || c.undecided.Load() != 0 || c.provisional.Load() == 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d undecided, %d provisional", seed, over, under, c.undecided.Load(), c.provisional.Load())
			}
		})
	}
}
