package ownership

import (
	"context"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
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
func TestSendLast(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key, _ := a.keyOf()
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
		w.end(b)
		if after := a.remaining(key); before-after != granted {
			t.Errorf("the owner had %d tokens left and has %d, and the standby has granted %d", before, after, granted)
		}
	})
}

// apart has the owner a of a partition cut off from its standby, which has granted tokens of a key and is not the standby any more, and that from the next one.
// Then no node reaches etcd, and a has flushed.
func (w *nodeWorld) apart(granted int) (a, grantor, standby *worldNodeRun, key ring.Key) {
	for _, id := range []string{"a", "b", "c"} {
		w.start(id, 1)
	}
	w.awaitSettled()
	a = w.life("a")
	key, p := a.keyOf()
	grantor = w.life(a.View().Partitions[p].Standby.ID)
	standby = w.life(map[string]string{"b": "c", "c": "b"}[grantor.Self.ID])
	w.wait(time.Second)
	w.separate("a", grantor.Self.ID, true)
	began := time.Now()
	for n := 0; n < granted; w.wait(time.Millisecond) {
		if grantor.decide(key, true).Takes[0].Source == shard.Provisional { // not before it has asked others
			n++
		} else if time.Since(began) > time.Second {
			w.t.Fatalf("the standby has granted %d of %d tokens\n%s", n, granted, w.describe())
		}
	}
	w.separate(grantor.Self.ID, standby.Self.ID, true)
	w.mu.Lock()
	w.wishes[grantor.Self] = view.Leaving
	w.mu.Unlock()
	w.await(func(part view.Partition) bool { return part.Owner == a.Self && part.Standby == standby.Self }, grantor, int(p))
	w.wait(500 * time.Millisecond)
	for _, x := range w.living() {
		w.separate(x.Self.ID, "etcd", true)
	}
	a.Flush(w.ctx)
	return a, grantor, standby, key
}

// end has a node send the last that others are to have, and end.
func (w *nodeWorld) end(x *worldNodeRun) {
	ctx, cancel := context.WithTimeout(w.ctx, 250*time.Millisecond)
	defer cancel()
	x.End()
	x.SendLast(ctx)
	w.kill(x)
}

// An owner that has flushed takes what a former standby has granted, and its standby has it before it ends.
func TestGrantsPostedAfterTheFlush(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		const granted = 10
		a, grantor, standby, key := w.apart(granted)
		w.separate("a", grantor.Self.ID, false)
		before := standby.remaining(key)
		for n := 0; a.remaining(key) != before-granted && n < 10_000; n++ {
			w.wait(100 * time.Microsecond)
		}
		w.end(a)
		if left := standby.remaining(key); left != before-granted {
			t.Errorf("the standby has %d tokens left, it had %d, and %d were granted", left, before, granted)
		}
	})
}

// An owner that has flushed takes what a former standby has granted, and dies before its standby has it. The grantor ends, and keeps it in its snapshot.
func TestGrantsPostedToAnOwnerThatEnds(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		const granted = 10
		a, grantor, standby, key := w.apart(granted)
		w.separate("a", standby.Self.ID, true)
		w.separate("a", grantor.Self.ID, false)
		w.separate(standby.Self.ID, grantor.Self.ID, false)
		w.end(grantor)
		saved := grantor.saveAll()
		w.kill(a)
		w.wait(time.Second)
		w.separate(standby.Self.ID, "etcd", false)
		w.separate(grantor.Self.ID, "etcd", false)
		w.startWith(grantor.Self.ID, 2, saved)
		w.awaitSettled()
		w.wait(2 * time.Second)
		left := int64(0)
		for w.check(key).allowed {
			left++
		}
		if left != worldLimit.Limit-granted {
			t.Errorf("%d of %d tokens are left, and %d were granted", left, worldLimit.Limit, granted)
		}
	})
}
