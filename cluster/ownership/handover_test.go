package ownership

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
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
			w.wait(time.Second)
			w.compareCopies()
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

// A node that has given its final state, and is the standby then, is fed what changes from then on, and not all that it has given.
func TestNewOwnersFeedTheFormerOnesChanges(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.awaitSettled()
		const counters = 5000
		for key := worldKeys; key < counters; key++ {
			w.check(worldKey(key))
		}
		stop := make(chan struct{})
		c := w.load(stop)
		b := w.start("b", 1)
		w.awaitSettled()
		close(stop)
		moved := 0
		for _, term := range b.Deciding() {
			if term > 0 {
				moved++
			}
		}
		w.wait(time.Second)
		w.compareCopies()
		if a.Shard.Len() != counters || b.Shard.Len() != counters {
			t.Errorf("%d and %d counters, want %d", a.Shard.Len(), b.Shard.Len(), counters)
		}
		const each = 64 // bytes of a counter at most, in records
		if w.finals.followed != moved || w.finals.refused > 0 || w.fed["b"] > worldKeys*each*10 {
			t.Errorf("%d partitions moved, %+v, and b has fed %d bytes", moved, w.finals, w.fed["b"])
		}
		if over, under := w.finish(c); over != 0 || under != 0 {
			t.Errorf("%d tokens too many, %d too few", over, under)
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
		c := x.Count()
		if owed = c.Deciding + c.Waiting + c.Owed; owed == 0 {
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

// A feed of changes is taken by a copy of the version that they are changes of, and not by one over which a part of another feed was laid.
func TestChangesAreOfOneVersion(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key := worldKey(0)
		p := key.Partition(uint32(w.params.Partitions))
		owner, standby := a, b
		if has, _ := a.Replica(p); has.State != replica.Deciding {
			owner, standby = b, a
		}
		w.check(key)
		w.wait(time.Second)
		x, _ := standby.Replica(p)
		w.kill(owner)
		owner.Shard.Follow(p, shard.ToSuccessor)
		records, _ := owner.Shard.Changes(p, shard.ToSuccessor, nil, 1<<16)
		session := uint64(1 << 40)
		take := func(base replica.Version, records []byte, complete bool) Receipt {
			session++
			later := replica.Version{Term: x.Version.Term, Sequence: x.Version.Sequence + 1}
			m := &Changes{Partition: p, Session: session, Index: 1, Version: later, Base: base, Records: records, Complete: complete}
			return standby.Take(owner.Self, []*Changes{m})[0]
		}
		other := replica.Version{Term: x.Version.Term, Sequence: x.Version.Sequence + 5}
		for i, step := range []struct {
			base     replica.Version
			records  []byte
			complete bool
			want     Receipt
		}{
			{other, nil, true, Again},
			{x.Version, nil, false, Taken},
			{x.Version, records, false, Taken},
			{x.Version, nil, true, Again}, // over what is a part only
			{replica.Version{}, nil, true, Taken},
			{x.Version, nil, true, Again}, // it is of a later version now
		} {
			if got := take(step.base, step.records, step.complete); got != step.want {
				t.Errorf("step %d: receipt %v, want %v", i, got, step.want)
			}
		}
	})
}

// A former standby has told the present one what it has granted, and ends before it tells the owner. Once the standby is the owner, the former one has that too.
func TestFormerOwnersAreFedWhatOthersHaveShared(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a, b := w.start("a", 1), w.start("b", 1)
		w.awaitSettled()
		key, p := worldKey(0), uint32(0)
		for n := 0; n == 0 || a.View().Partitions[p].Owner != a.Self; n++ {
			key = worldKey(n)
			p = key.Partition(uint32(w.params.Partitions))
		}
		w.check(key)
		w.wait(time.Second)
		former := w.newNode("d", 1)
		former.Shard.Withhold(p, false)
		const granted = 9
		for range granted {
			former.decide(key, true)
		}
		w.setWish(a.Self, view.Leaving)
		w.separate("a", "b", true) // so that it is about to leave for a while, and then gives what has changed
		w.wait(time.Second)
		answer := b.Add(former.Self, []Post{{Partition: p, Batches: []Batch{{1, former.Shard.TakeGrants(p, 1)}}}})[0]
		w.separate("a", "b", false)
		w.await(func(part view.Partition) bool { return part.Owner == b.Self }, a, int(p))
		w.wait(time.Second)
		most := worldLimit.Limit - granted - 1
		if has, left := a.remaining(key), b.remaining(key); answer.Added != 1 || left > most || has != left {
			t.Errorf("%+v: %d tokens are left at the owner, and %d at the standby, want %d at most", answer, left, has, most)
		}
		if w.finals.followed == 0 || w.finals.refused > 0 {
			t.Errorf("%+v", w.finals)
		}
	})
}

// A new owner goes on from a final state only if the one that has given it has all that it has itself.
func TestOwnersGoOnFromWhatBothHave(t *testing.T) {
	for name, change := range map[string]func(x *partition, from view.Life, m *Changes){
		"":                func(*partition, view.Life, *Changes) {},
		"another standby": func(x *partition, _ view.Life, _ *Changes) { x.replica.Claim.Standby = x.node.Self },
		"two predecessors": func(x *partition, _ view.Life, _ *Changes) {
			x.replica.Claim.Predecessors = append(x.replica.Claim.Predecessors, x.node.Self)
		},
		"no predecessor":    func(x *partition, _ view.Life, _ *Changes) { x.replica.Claim.Predecessors = []view.Life{x.node.Self} },
		"an older node":     func(_ *partition, _ view.Life, m *Changes) { m.ReadsBase = false },
		"no final state":    func(_ *partition, _ view.Life, m *Changes) { m.FinalFor = 0 },
		"deltas of its own": func(x *partition, _ view.Life, _ *Changes) { x.deltas.own.batches = []Batch{{Number: 1}} },
		"grants that are no delta yet": func(x *partition, _ view.Life, _ *Changes) {
			x.node.Shard.Withhold(x.p, false)
			x.node.Shard.Decide([]shard.Group{{Provisional: true, Takes: []shard.Take{{Key: keyOf(x), Limit: worldLimit, Cost: 1}}}})
		},
		"grants of others":       func(x *partition, _ view.Life, _ *Changes) { x.in.feed.apart = true },
		"a feed of another node": func(x *partition, from view.Life, _ *Changes) { x.out.feeds[givenFollower].to = from },
	} {
		t.Run(name, func(t *testing.T) {
			runWorld(t, 1, func(w *nodeWorld) {
				x, from := &w.newNode("b", 1).parts[5], view.Life{ID: "a", Incarnation: 1}
				x.replica.Claim.Standby, x.replica.Claim.Predecessors = from, []view.Life{from}
				m := &Changes{Partition: x.p, FinalFor: 7, ReadsBase: true, Complete: true, Version: replica.Version{Term: 3, Sequence: 4}}
				change(x, from, m)
				x.noteGiven(from, m)
				want := given{}
				if name == "" {
					want = given{from, m.Version}
				}
				if x.in.given != want || x.node.Shard.IsFollowing(x.p, givenFollower) != (name == "") {
					t.Errorf("%+v, tracked: %v", x.in.given, x.node.Shard.IsFollowing(x.p, givenFollower))
				}
			})
		})
	}
}

// keyOf returns a key of a partition.
func keyOf(x *partition) (k ring.Key) {
	for n := 0; ; n++ {
		if k = worldKey(n); k.Partition(uint32(x.node.Partitions)) == x.p {
			return k
		}
	}
}

// movingKey returns a key, and its partition, that a owns and b is to own once it has joined a and c.
func (w *nodeWorld) movingKey(a *worldNodeRun) (key ring.Key, p uint32) {
	later := &view.View{}
	for _, id := range []string{"a", "b", "c"} {
		later.Members = append(later.Members, view.Member{Life: view.Life{ID: id, Incarnation: 1}})
	}
	for n := 0; ; n++ {
		key, p = worldKey(n), worldKey(n).Partition(uint32(w.params.Partitions))
		if a.View().Partitions[p].Owner.ID == "a" && w.plan(later)[p].Owner == "b" {
			return key, p
		}
	}
}

// A final state goes through another node, if the former owner has just ceased to reach the new one. Changes that were on their way to it then do not keep it.
func TestFinalStatesGoThroughOthers(t *testing.T) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.start("c", 1)
		w.awaitSettled()
		key, p := w.movingKey(a)
		b := w.start("b", 1)
		cut := func(is bool) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.cut[[2]string{"a", "b"}] = is
		}
		for ok := false; !ok; {
			cut(false)
			for complete := false; !complete || b.View().Partitions[p].Standby != b.Self; {
				w.wait(100 * time.Microsecond)
				_, complete = b.parts.report(int(p))
			}
			cut(true)
			w.wait(20 * time.Millisecond)
			a.decide(key, false) // it is not fed: a feed that has it is on its way
			for last := b.View().Number; b.View().Number == last || a.View().Number < b.View().Number; {
				w.wait(100 * time.Microsecond)
			}
			ok = b.View().Partitions[p].Owner == b.Self // else that view was on its way before
		}
		before := a.remaining(key)
		adopted := time.Now()
		for r, _ := b.Replica(p); r.State != replica.Deciding && time.Since(adopted) < time.Second; r, _ = b.Replica(p) {
			w.wait(100 * time.Microsecond)
		}
		if took, left := time.Since(adopted), b.remaining(key); took > 30*time.Millisecond || left != before {
			t.Errorf("after %s the next owner has %d tokens left, and the former one had %d", took, left, before)
		}
	})
}

// A former owner grants as the standby while the new one is not reached. The new one knows of that as soon as it decides, and counts it once.
func TestFinalStatesHaveGrants(t *testing.T) {
	for name, again := range map[string]bool{"as it was made": false, "made again": true} {
		t.Run(name, func(t *testing.T) { checkFinalGrants(t, again) })
	}
}

func checkFinalGrants(t *testing.T, again bool) {
	runWorld(t, 1, func(w *nodeWorld) {
		a := w.start("a", 1)
		w.start("c", 1)
		w.awaitSettled()
		key, p := w.movingKey(a)
		a.decide(key, false)
		b := w.start("b", 1)
		stateOf := func(x *worldNodeRun) replica.Replica {
			r, _ := x.Replica(p)
			return r
		}
		named := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.view.Partitions[p].Owner == b.Self
		}
		for !named() {
			w.wait(100 * time.Microsecond)
		}
		w.separate("a", "b", true) // before both have adopted that view
		w.separate("c", "b", true)
		w.doubt("a", "b")
		w.doubt("b", "a")
		const granted = 10
		before := a.remaining(key)
		for n := 0; n < granted; w.wait(5 * time.Millisecond) {
			if a.mayGrant(p) && a.decide(key, true).Takes[0].Source == shard.Provisional {
				n++
			}
		}
		if again {
			x := &a.parts[p]
			x.mu.Lock()
			for f := range x.out.feeds {
				if x.out.feeds[f].to == b.Self {
					x.restartFeed(shard.Follower(f))
				}
			}
			x.mu.Unlock()
		}
		w.separate("a", "b", false) // messages arrive, and neither posts or asks before it knows
		w.separate("c", "b", false)
		for stateOf(b).State != replica.Deciding {
			w.wait(100 * time.Microsecond)
		}
		if after := b.remaining(key); before-after != granted {
			t.Errorf("the former owner had %d tokens left and has granted %d of them, and the new one begins with %d", before, granted, after)
		}
	})
}

// A final state that was heard comes again, as the answer was lost, with what its sender has granted meanwhile. It is not laid down, so the copy is no later by it.
func TestHeardFinalStateComesAgain(t *testing.T) {
	life := func(id string) view.Life { return view.Life{ID: id, Incarnation: 1} }
	self, former, other := life("a"), life("b"), life("c")
	counters, err := shard.New(shard.Config{Partitions: 1, MaxBytes: 1 << 20, Metrics: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(Config{
		Self: self, Shard: counters, Partitions: 1, Observer: unobserved{}, Logger: slog.New(slog.DiscardHandler), Peers: direct{},
		Plan: func(*view.View) view.Plan { return view.Plan{{Owner: "a"}} }, HasSaidFarewell: func(view.Life) bool { return false },
	})
	n.Adopt(&view.View{
		Number: 2, Members: []view.Member{{Life: self}, {Life: former, State: view.Gone}, {Life: other, State: view.Gone}}, // so it needs no witness
		Partitions: []view.Partition{{Owner: self, Term: 2, Predecessors: []view.Life{former, other}}},
	})
	final := Changes{Session: 1, Index: 1, Version: replica.Version{Term: 1, Sequence: 5}, Complete: true, FinalFor: 2}
	later := final
	later.Version.Sequence, later.Acknowledged = 6, later.Acknowledged.With(former, 1)
	for _, m := range []*Changes{&final, &later} {
		n.Take(former, []*Changes{m})
	}
	for name, tc := range map[string]struct {
		m    Changes
		want Receipt
	}{
		"a final state that is not waited for": {Changes{Session: 9, Index: 1, Version: replica.Version{Term: 1, Sequence: 9}, Complete: true, FinalFor: 2}, Useless},
		"one of a later term":                  {Changes{Session: 9, Index: 1, Version: replica.Version{Term: 1, Sequence: 9}, Complete: true, FinalFor: 3}, Later},
		"other changes":                        {Changes{Session: 9, Index: 1, Version: replica.Version{Term: 1, Sequence: 9}, Complete: true}, Later},
	} {
		if got := n.TakeAwaited(former, []*Changes{&tc.m}); got[0] != tc.want {
			t.Errorf("through another node, %s: receipt %d, want %d", name, got[0], tc.want)
		}
	}
	r, _ := n.Replica(0)
	if r.State != replica.Waiting || r.Version != final.Version || r.Acknowledged.Of(former) != 0 {
		t.Errorf("%+v, want one that waits for %v, of version %v without deltas", r, other, final.Version)
	}
}
