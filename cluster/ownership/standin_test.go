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
