package ownership

import (
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// A later life of a node that was alone, which no view names, goes on from the snapshot.
func TestStandIn(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, key := w.start("a", 1), worldKey(0)
		w.awaitSettled()
		for range 10 {
			a.decide(key, false)
		}
		v, parts := a.View(), a.saveAll()
		w.kill(a)
		later := w.newNode("a", 2)
		later.restoreAll(parts)
		w.running.Go(func() { later.Run(w.ctx) })
		later.Adopt(v)
		w.wait(time.Second)
		if !later.DecidesProvisionally(key.Partition(uint32(w.params.Partitions))) {
			t.Error("it does not stand in")
		}
		left := 0
		for g := later.decide(key, true); g.Allowed && g.Takes[0].Source == shard.Provisional; g = later.decide(key, true) {
			left++
		}
		if want := int(worldLimit.Limit) - 10; left != want {
			t.Errorf("%d tokens are left, want %d", left, want)
		}
	})
}

// A later life of a standby stands in as soon as an owner is gone that it has reached. It need not wait, as for one that it may not have connected to yet.
func TestStandInForAnOwnerThatWasReached(t *testing.T) {
	runWorld(t, 2, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		v := b.View()
		p := slices.IndexFunc(v.Partitions, func(part view.Partition) bool { return part.Owner == a.Self && part.Standby == b.Self })
		if p < 0 {
			t.Fatal("b stands by for no partition of a")
		}
		w.kill(b)
		later := w.newNode("b", 2)
		w.running.Go(func() { later.Run(w.ctx) })
		later.Adopt(v)
		w.wait(200 * time.Millisecond)
		if later.DecidesProvisionally(uint32(p)) {
			t.Error("it stands in although the owner is there")
		}
		w.kill(a)
		w.wait(200 * time.Millisecond)
		if !later.DecidesProvisionally(uint32(p)) {
			t.Error("it does not stand in")
		}
	})
}

// startLater runs a later life of a node that was alone, with what it has saved, and with the view of the earlier life.
func (w *nodeWorld) startLater(earlier *worldNodeRun, standIns func() []view.Life, reports func() view.Reports) *worldNodeRun {
	v, parts := earlier.View(), earlier.saveAll()
	w.kill(earlier)
	later := w.newNode(earlier.Self.ID, earlier.Self.Incarnation+1)
	later.StandIns, later.Reports = standIns, reports
	later.restoreAll(parts)
	later.Adopt(v)
	w.running.Go(func() { later.Run(w.ctx) })
	return later
}

// A later life of an owner leaves a partition to the learner that stands in, also if it hears of that while it looks.
func TestLaterLifeLeavesItToTheLearner(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.awaitSettled()
		var standIns []view.Life
		heard := func() view.Reports {
			standIns = slices.Repeat([]view.Life{{ID: "b", Incarnation: 1}}, w.params.Partitions)
			return view.Reports{{Life: view.Life{ID: "b", Incarnation: 1}, Adopted: 1}}
		}
		later := w.newNode("a", 2)
		later.StandIns, later.Reports = func() []view.Life { return standIns }, heard
		later.Adopt(a.View())
		w.kill(a)
		later.standIn()
		if later.DecidesProvisionally(0) {
			t.Error("it stands in as well")
		}
	})
}

// A later life of an owner stands in once the learner that did so is not reached any more.
func TestLaterLifeStandsInForTheLearner(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.awaitSettled()
		standIns := slices.Repeat([]view.Life{{ID: "b", Incarnation: 1}}, w.params.Partitions)
		later := w.startLater(a, func() []view.Life { return standIns }, func() view.Reports { return nil })
		w.wait(StandInAfter / 2)
		if later.DecidesProvisionally(0) {
			t.Error("it stands in before it had time to connect to the learner")
		}
		w.wait(StandInAfter)
		if !later.DecidesProvisionally(0) {
			t.Error("it does not stand in, although the learner is not reached")
		}
	})
}

// A later life of an owner, whose standby has ended too, has the only copy until a view names it. It keeps that, also if etcd is away for longer than copies are
// kept that are of no use.
func TestStandInsKeepTheirCopies(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key, p := a.keyOf()
		for range 10 {
			a.decide(key, false)
		}
		v, parts := a.View(), a.saveAll()
		w.kill(a)
		w.kill(b)
		later := w.newNode("a", 2)
		later.restoreAll(parts)
		w.running.Go(func() { later.Run(w.ctx) })
		later.Adopt(v)
		for _, length := range []time.Duration{5 * time.Second, keepUnused + 2*dropEvery} {
			w.wait(length)
			if got, want := later.remaining(key), worldLimit.Limit-10-1; !later.DecidesProvisionally(p) || got != want {
				t.Errorf("it stands in: %v, with %d tokens left, want %d", later.DecidesProvisionally(p), got, want)
			}
		}
	})
}
