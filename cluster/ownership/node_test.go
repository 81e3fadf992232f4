package ownership

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// tally counts what checks of some keys have become.
type tally struct {
	granted, asked [worldKeys]atomic.Int64
	provisional    atomic.Int64
	unanswered     atomic.Int64
}

const worldKeys = 40

// load asks for tokens of all keys until stop is closed.
func (w *nodeWorld) load(stop <-chan struct{}) *tally {
	c := new(tally)
	for i := range 4 {
		w.running.Go(func() {
			for n := i; ; n++ {
				select {
				case <-stop:
					return
				case <-w.ctx.Done():
					return
				default:
				}
				c.count(n%worldKeys, w.check(worldKey(n%worldKeys)))
				w.wait(10 * time.Millisecond)
			}
		})
	}
	return c
}

func (c *tally) count(key int, o outcome) {
	c.asked[key].Add(1)
	switch {
	case o.source == shard.Unanswered:
		c.unanswered.Add(1)
	case o.allowed:
		c.granted[key].Add(1)
		if o.source == shard.Provisional {
			c.provisional.Add(1)
		}
	}
}

// finish asks until no key has tokens left, and returns how many were granted beyond the limits, and how many fewer.
func (w *nodeWorld) finish(c *tally) (over, under int64) {
	var all sync.WaitGroup
	for key := range worldKeys {
		all.Go(func() {
			for range worldLimit.Limit + 1 {
				c.count(key, w.check(worldKey(key)))
			}
		})
	}
	all.Wait()
	for key := range worldKeys {
		granted := c.granted[key].Load()
		over += max(0, granted-worldLimit.Limit)
		under += max(0, worldLimit.Limit-granted)
	}
	return over, under
}

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
			if over > 10 || under > 10 || c.unanswered.Load() != 0 || c.provisional.Load() == 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d unanswered, %d provisional", seed, over, under, c.unanswered.Load(), c.provisional.Load())
			}
		})
	}
}

// Owner and standby do not reach each other for a while: both grant, and the owner counts what the standby has granted, once.
func TestProvisionalGrantsAreCountedOnce(t *testing.T) {
	for seed := range uint64(3) {
		runWorld(t, seed, func(w *nodeWorld) {
			w.start("a", 1)
			w.start("b", 1)
			w.start("c", 1)
			w.awaitSettled()
			stop := make(chan struct{})
			c := w.load(stop)
			w.separate("a", "b", true)
			w.wait(2 * time.Second)
			w.separate("a", "b", false)
			w.wait(2 * time.Second)
			close(stop)
			for _, x := range w.living() {
				if owed := x.batches.Load(); owed != 0 || x.Shard.HasAnyGrants() {
					t.Errorf("%v has %d deltas", x.Self, owed)
				}
			}
			over, under := w.finish(c)
			t.Logf("seed %d: %d views, %d provisional, %d tokens over, %d under", seed, w.views, c.provisional.Load(), over, under)
			if over != 0 || under != 0 || c.unanswered.Load() != 0 || c.provisional.Load() == 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d unanswered, %d provisional", seed, over, under, c.unanswered.Load(), c.provisional.Load())
			}
		})
	}
}

// All nodes stop, and start again with their snapshots, except one that has lost its disk: each partition begins with the latest copy that any
// node has of it.
func TestSnapshotsOfAllNodes(t *testing.T) {
	for seed := range uint64(3) {
		runWorld(t, seed, func(w *nodeWorld) {
			var nodes []*worldNodeRun
			for _, id := range []string{"a", "b", "c"} {
				nodes = append(nodes, w.start(id, 1))
			}
			w.awaitSettled()
			stop := make(chan struct{})
			c := w.load(stop)
			w.wait(3 * time.Second)
			close(stop)
			w.wait(500 * time.Millisecond)
			kept := make(map[string][]snapshotPart)
			for _, x := range nodes {
				x.Flush(w.ctx)
				kept[x.Self.ID] = x.saveAll()
				w.kill(x)
			}
			kept["a"] = nil
			for _, x := range nodes {
				w.startWith(x.Self.ID, 2, kept[x.Self.ID])
			}
			w.awaitSettled()
			over, under := w.finish(c)
			if over != 0 || under != 0 || c.unanswered.Load() != 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d unanswered", seed, over, under, c.unanswered.Load())
			}
		})
	}
}

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
		if over != 0 || under != 0 || c.unanswered.Load() != 0 || c.provisional.Load() == 0 {
			t.Errorf("%d tokens too many, %d too few, %d unanswered, %d provisional", over, under, c.unanswered.Load(), c.provisional.Load())
		}
	})
}

// What a standby has granted and the owner was not told is in its snapshot, and reaches the owner after a restart.
func TestUndelivered(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key := worldKey(0)
		for n := 1; a.View().Partitions[key.Partition(uint32(w.params.Partitions))].Owner != a.Self; n++ {
			key = worldKey(n)
		}
		w.wait(time.Second) // b is fed what it has handed over
		w.separate("a", "b", true)
		w.wait(100 * time.Millisecond)
		for range 10 {
			if g := b.decide(key, true); !g.Allowed {
				t.Fatalf("the standby: %+v", g)
			}
		}
		w.kill(b)
		w.wait(time.Second)
		w.separate("a", "b", false)
		w.startWith("b", 2, b.saveAll())
		w.awaitSettled()
		w.wait(time.Second)
		left := 0
		for w.check(key).allowed {
			left++
		}
		if want := int(worldLimit.Limit) - 10; left != want {
			t.Errorf("%d tokens are left, want %d", left, want)
		}
	})
}

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
		if !later.DecidesApart(key.Partition(uint32(w.params.Partitions))) {
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
		if later.DecidesApart(uint32(p)) {
			t.Error("it stands in although the owner is there")
		}
		w.kill(a)
		w.wait(200 * time.Millisecond)
		if !later.DecidesApart(uint32(p)) {
			t.Error("it does not stand in")
		}
	})
}

// snapshotPart is what a snapshot has of a partition.
type snapshotPart struct {
	version replica.Version
	records []byte
	grants  []shard.Grant
}

func (x *worldNodeRun) saveAll() (all []snapshotPart) {
	for p := range x.parts {
		version, records, _, _ := x.Save(uint32(p), 0, nil)
		all = append(all, snapshotPart{version, records, x.Undelivered(uint32(p))})
	}
	return all
}

// startWith runs a life of a node that has a snapshot.
func (w *nodeWorld) startWith(id string, incarnation uint64, parts []snapshotPart) {
	w.t.Helper()
	x := w.newNode(id, incarnation)
	x.restoreAll(parts)
	w.begin(x)
}

func (x *worldNodeRun) restoreAll(parts []snapshotPart) {
	for p, s := range parts {
		if s.version.Term > 0 {
			if err := x.Restore(uint32(p), s.version, s.records, s.grants); err != nil {
				x.world.t.Fatal(err)
			}
		}
	}
}
