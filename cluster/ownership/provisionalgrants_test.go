package ownership

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
)

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
			if over != 0 || under != 0 || c.undecided.Load() != 0 || c.provisional.Load() == 0 {
				t.Errorf("seed %d: %d tokens too many, %d too few, %d undecided, %d provisional", seed, over, under, c.undecided.Load(), c.provisional.Load())
			}
		})
	}
}

// What a standby has granted and the owner was not told is in its snapshot, and reaches the owner after a restart.
func TestUndelivered(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key, _ := a.keyOf()
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

// A former standby posts what it has granted to an owner that does not know yet that it is that, and has it in its copy only. Once it knows it gets that again.
func TestOwnersThatDoNotKnowGetDeltasAgain(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, c := w.start("a", 1), w.start("c", 1)
		w.awaitSettled()
		// A key that a owns and c stands by for, until d takes it.
		d := view.Life{ID: "d", Incarnation: 1}
		plan := w.plan(&view.View{Members: []view.Member{{Life: a.Self}, {Life: c.Self}, {Life: d}}})
		key, p := worldKey(0), 0
		for n := 0; n == 0 || a.View().Partitions[p].Owner != a.Self || plan[p].Owner != "d"; n++ {
			key = worldKey(n)
			p = int(key.Partition(uint32(w.params.Partitions)))
		}
		w.check(key)
		w.wait(time.Second)
		w.separate("a", "c", true)
		w.wait(100 * time.Millisecond)
		const granted = 10
		for range granted {
			if g := c.decide(key, true); !g.Allowed {
				t.Fatalf("the standby: %+v", g)
			}
		}
		w.await(func(part view.Partition) bool { return part.Standby == d }, w.start("d", 1), p)
		w.wait(2 * feedEvery) // it has posted them to the standby
		w.separate("d", "etcd", true)
		w.await(func(part view.Partition) bool { return part.Owner == d }, c, p)
		w.wait(2 * feedEvery)
		w.separate("d", "etcd", false)
		w.separate("a", "c", false)
		w.awaitSettled()
		w.wait(time.Second)
		left := 0
		for w.check(key).allowed {
			left++
		}
		// They may be counted more than once: in what the owner had before, of which it does not know what is left, and once it decides.
		if most := int(worldLimit.Limit) - granted - 1; left > most || left <= 0 || c.batches.Load() != 0 {
			t.Errorf("%d tokens are left, want %d at most; %d deltas", left, most, c.batches.Load())
		}
	})
}

// await waits until a node has adopted a view in which a partition is as f says.
func (w *nodeWorld) await(f func(view.Partition) bool, x *worldNodeRun, p int) {
	w.t.Helper()
	for range 10_000 {
		if v := x.View(); v != nil && f(v.Partitions[p]) {
			return
		}
		w.wait(time.Millisecond)
	}
	w.t.Fatalf("after 10 s: %+v\n%s", x.View().Partitions[p], w.describe())
}

// What a node has that does not decide may be lost when that is fed: once there are later deltas it is sent the earlier ones with them. An owner takes what it
// is sent for all up to the last.
func TestPostsHaveNoGaps(t *testing.T) {
	d := view.Life{ID: "d", Incarnation: 1}
	for name, test := range map[string]struct {
		owner, standby view.Life
		added          uint64
		batches        []Batch
		posted         bool
		want           []uint64
	}{
		"an owner, nothing new":  {d, view.Life{}, 0, []Batch{{Number: 3}}, true, nil}, // is asked whether it decides now
		"an owner, and more":     {d, view.Life{}, 0, []Batch{{Number: 3}, {Number: 4}}, true, []uint64{3, 4}},
		"an owner that has some": {d, view.Life{}, 3, []Batch{{Number: 3}, {Number: 4}}, true, []uint64{4}},
		"a standby, nothing new": {view.Life{ID: "e"}, d, 3, []Batch{{Number: 3}}, false, nil},
		"a standby, and more":    {view.Life{ID: "e"}, d, 3, []Batch{{Number: 3}, {Number: 4}}, true, []uint64{3, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				n := w.newNode("c", 1)
				x := &n.parts[5]
				x.replica.Claim.Owner, x.replica.Claim.Standby = test.owner, test.standby
				x.deltas.own.batches, x.deltas.own.shared, x.deltas.own.added = test.batches, mark{d, 3}, test.added
				posts, _ := n.postsFor(d, 0, true)
				var got []uint64
				for _, m := range posts {
					for _, b := range m.Batches {
						got = append(got, b.Number)
					}
				}
				if (len(posts) > 0) != test.posted || !slices.Equal(got, test.want) {
					t.Errorf("%d posts of deltas %v, want %v: %v", len(posts), got, test.posted, test.want)
				}
			})
		})
	}
}

// Deltas that are on their way to an owner that has ended do not keep others of the same partition from the next owner: a call can hang for half a second.
func TestPostsToTheNextOwnerDoNotWait(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		n := w.newNode("c", 1)
		x := &n.parts[5]
		x.deltas.own.batches = []Batch{{Number: 3}}
		for _, owner := range []view.Life{{ID: "b", Incarnation: 1}, {ID: "d", Incarnation: 1}} {
			x.replica.Claim.Owner = owner
			if posts, _ := n.postsFor(owner, 0, true); len(posts) != 1 || len(posts[0].Batches) != 1 {
				t.Errorf("posts to %s: %+v", owner.ID, posts)
			}
		}
	})
}

// A standby is fed a counter of which a former standby has shared grants with it, and takes over. These count in its copy, and once, although it hears them again
// before it decides.
func TestFedStandbysKeepSharedGrants(t *testing.T) { checkTakeOver(t, false) }

// A standby that has not reached a former one hears that before it takes over.
func TestNewOwnersHearFormerStandbys(t *testing.T) { checkTakeOver(t, true) }

// cutOwnerFromStandby returns the owner of a key, a, and its standby, b, which have been cut off from each other, and of which b has granted so much since. Once f has
// joined, f is the standby.
func (w *nodeWorld) cutOwnerFromStandby(granted int) (a, b *worldNodeRun, key ring.Key, p int) {
	w.t.Helper()
	a, b = w.start("a", 1), w.start("b", 1)
	w.awaitSettled()
	key, p = w.keyOfPlace(view.Place{Owner: "a", Standby: "f"}, "f")
	w.check(key)
	w.wait(time.Second)
	w.separate("a", "b", true)
	w.wait(100 * time.Millisecond)
	for range granted {
		if g := b.decide(key, true); !g.Allowed {
			w.t.Fatalf("the standby: %+v", g)
		}
	}
	return a, b, key, p
}

// checkTakeOver has f take over from a, which says farewell, after b has granted as the standby before f. b is cut off from a; if late, also from etcd, so that it does
// not know of f, and from f until a has ended.
func checkTakeOver(t *testing.T, late bool) {
	runWorld(t, 1, func(w *nodeWorld) {
		const granted = 10
		a, _, key, p := w.cutOwnerFromStandby(granted)
		f := view.Life{ID: "f", Incarnation: 1}
		x := w.start("f", 1)
		w.separate("b", "f", late)
		w.separate("b", "etcd", late)
		w.await(func(part view.Partition) bool { return part.Standby == f }, x, p)
		w.wait(2 * feedEvery) // f has heard b, if it reaches it
		if g := a.decide(key, false); !g.Allowed {
			t.Fatalf("the owner: %+v", g)
		}
		a.Flush(w.ctx) // f is fed the counter
		want := a.remaining(key) - granted
		if got := x.remaining(key); (got == want) == late {
			t.Errorf("the standby has %d tokens left, want %d: %v", got, want, !late)
		}
		w.mu.Lock()
		w.farewells[a.Self] = true
		w.mu.Unlock()
		w.separate("b", "f", false)
		w.kill(a)
		for n := 0; n < 100_000 && x.Deciding()[p] == 0; n++ { // up to 10 s
			w.wait(100 * time.Microsecond)
		}
		if got := x.remaining(key); got != want {
			t.Errorf("the new owner begins with %d tokens, want %d", got, want)
		}
	})
}

// A new standby asks the members for what they have granted before it grants from its copy. It does not wait for the owner, which has fed it that copy: if the owner
// stands still just then, checks find the standby ready. Nor does it for a member that only others reach.
func TestNewStandbysDoNotWaitForTheOwner(t *testing.T) {
	for name, tc := range map[string]struct{ others, unreached bool }{
		"no other member":                       {},
		"another member":                        {others: true},
		"another member that only others reach": {others: true, unreached: true},
	} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				a := w.start("a", 1)
				if tc.others {
					w.start("b", 1)
				}
				w.awaitSettled()
				_, p := w.keyOfPlace(view.Place{Owner: "a", Standby: "f"}, "f")
				x := w.newNode("f", 1)
				x.Peers = withHear{x, tc.unreached, func(ctx context.Context, to view.Life) ([]Post, uint64, error) {
					if tc.unreached && to.ID == "b" {
						return nil, 0, errors.New("no route")
					}
					return x.Hear(ctx, to)
				}}
				w.begin(x)
				w.haltOnceStandby(a, x, p)
				w.await(func(part view.Partition) bool { return part.Standby == x.Self }, x, p)
				w.wait(5 * time.Millisecond) // calls take 1.2 ms at most
				if !x.IsGrantable(uint32(p)) {
					t.Error("the standby does not grant")
				}
			})
		})
	}
}

// keyOfPlace returns a key, and its partition, that the plan wants at that place once a node has joined, and whose owner is that of the place already.
func (w *nodeWorld) keyOfPlace(at view.Place, joins string) (ring.Key, int) {
	v := w.written()
	plan := w.plan(&view.View{Members: append(slices.Clone(v.Members), view.Member{Life: view.Life{ID: joins, Incarnation: 1}})})
	for n := 0; ; n++ {
		key := worldKey(n)
		if p := int(key.Partition(uint32(w.params.Partitions))); plan[p] == at && v.Partitions[p].Owner.ID == at.Owner {
			return key, p
		}
	}
}

// haltOnceStandby has the owner of a partition stand still at the moment when a view is written by which a node is the standby.
func (w *nodeWorld) haltOnceStandby(owner, standby *worldNodeRun, p int) {
	w.t.Helper()
	for range 100_000 {
		if part := w.written().Partitions[p]; part.Owner == owner.Self && part.Standby == standby.Self {
			w.halt(owner.Self.ID)
			return
		}
		w.wait(100 * time.Microsecond)
	}
	w.t.Fatalf("after 10 s: %+v", w.written().Partitions[p])
}

// withHear is a node whose calls of Hear are others, and that may not reach b itself.
type withHear struct {
	*worldNodeRun
	unreached bool
	hear      func(ctx context.Context, to view.Life) ([]Post, uint64, error)
}

func (x withHear) ReachesID(id string) bool {
	return !(x.unreached && id == "b") && x.worldNodeRun.ReachesID(id)
}

func (x withHear) Hear(ctx context.Context, to view.Life) ([]Post, uint64, error) {
	return x.hear(ctx, to)
}

// The call to a former standby fails, or finds it with an earlier view, while the owner stands still. The new standby asks it again before it grants.
func TestNewStandbysAskAgain(t *testing.T) {
	for name, first := range map[string]func(number uint64) (adopted uint64, err error){
		"its connection breaks":  func(uint64) (uint64, error) { return 0, errors.New("reset") },
		"it has an earlier view": func(number uint64) (uint64, error) { return number - 1, nil },
	} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				const granted = 10
				a, b, key, p := w.cutOwnerFromStandby(granted)
				x, failed := w.newNode("f", 1), false
				x.Peers = withHear{x, false, func(ctx context.Context, to view.Life) ([]Post, uint64, error) {
					if v := x.View(); to == b.Self && !failed && v.Partitions[p].Standby == x.Self {
						failed = true
						adopted, err := first(v.Number)
						return nil, adopted, err
					}
					return x.Hear(ctx, to)
				}}
				w.begin(x)
				w.haltOnceStandby(a, x, p)
				w.separate("b", "etcd", true) // it knows of the view only by calls
				before := x.remaining(key)
				for n := 0; !x.IsGrantable(uint32(p)); n++ {
					if n == 10_000 {
						t.Error("after 1 s it does not grant")
						return
					}
					w.wait(100 * time.Microsecond)
				}
				if got, most := x.remaining(key), before-granted; got > most || !failed {
					t.Errorf("it begins with %d tokens, want %d at most; asked in vain: %v", got, most, failed)
				}
			})
		})
	}
}

// An owner that has lost what was shared with it, as a standby, is sent it again as soon as it says so.
func TestLostDeltasAreSentAgainAtOnce(t *testing.T) {
	d := view.Life{ID: "d", Incarnation: 1}
	for name, added := range map[string]uint64{"it has them": 3, "it has lost them": 0} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				n := w.newNode("c", 1)
				c := &peer{life: d, due: make(chan struct{}, 1)}
				n.byLife.Store(&map[view.Life]*peer{d: c})
				x := &n.parts[5]
				x.deltas.own.batches, x.deltas.own.shared, x.replica.Claim.Owner = []Batch{{Number: 3}}, mark{d, 3}, d
				x.posted(d, Posting{Added: added})
				posts, _ := n.postsFor(d, 0, true)
				if lost := added == 0; (len(c.due) > 0) != lost || len(posts) != 1 || (len(posts[0].Batches) > 0) != lost {
					t.Errorf("%d calls are due, with %+v", len(c.due), posts)
				}
			})
		})
	}
}
