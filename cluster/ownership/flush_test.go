package ownership

import (
	"context"
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

// A standby that ends leaves what it has granted to the owner, also if that does not decide any more: without etcd, both are about to end.
func TestPostAll(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key := worldKey(0)
		for n := 1; a.View().Partitions[key.Partition(uint32(w.params.Partitions))].Owner != a.Self; n++ {
			key = worldKey(n)
		}
		w.wait(time.Second) // b is fed what it has handed over
		for _, x := range w.living() {
			w.separate(x.Self.ID, "etcd", true)
		}
		a.Flush(w.ctx)
		const granted = 10
		before := a.remaining(key)
		for range granted {
			if g := b.decide(key, true); !g.Allowed {
				t.Fatalf("the standby: %+v", g)
			}
		}
		ctx, cancel := context.WithTimeout(w.ctx, 250*time.Millisecond)
		defer cancel()
		b.PostAll(ctx)
		w.kill(b)
		if after := a.remaining(key); before-after != granted {
			t.Errorf("the owner had %d tokens left and has %d, and the standby has granted %d", before, after, granted)
		}
	})
}
