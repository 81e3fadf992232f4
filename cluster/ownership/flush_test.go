package ownership

import (
	"testing"
	"time"
)

// A node that stops without another view leaves all that it has granted to its standbys.
func TestFlush(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.start("b", 1)
		w.start("c", 1)
		w.awaitSettled()
		stop := make(chan struct{})
		c := w.load(stop)
		w.wait(time.Second)
		a.Flush(w.ctx)
		w.kill(a)
		w.wait(100 * time.Millisecond)
		w.awaitSettled()
		close(stop)
		over, under := w.finish(c)
		if over != 0 || under != 0 || c.undecided.Load() != 0 || c.provisional.Load() == 0 {
			t.Errorf("%d tokens too many, %d too few, %d undecided, %d provisional", over, under, c.undecided.Load(), c.provisional.Load())
		}
	})
}
