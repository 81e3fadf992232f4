package cluster

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// ledger is what some nodes have counted together, and which of them has which partition.
type ledger struct {
	mu         sync.Mutex
	partitions uint32
	counts     map[ring.Key]int64
	owner      map[uint32]int // -1 while no node has it
	copies     []map[ring.Key]int64
}

// page is the ledger as one node keeps it, and what the node has granted from copies.
type page struct {
	*ledger
	self int
}

// Decide counts a group of whose partitions this node has all, or which may be decided
// from copies, if all of it has room in a window that never ends. Remaining says how much is
// counted then.
func (p page) Decide(groups []shard.Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range groups {
		g := &groups[i]
		g.Allowed = true
		for j := range g.Takes {
			t := &g.Takes[j]
			counts, source := p.countsOf(t.Key, g.Provisional && !g.Reset)
			t.Decision = algorithms.Decision{Allowed: counts[t.Key]+t.Cost <= t.Limit.Limit, RetryAt: algorithms.Never}
			t.Source = source
			g.Allowed = g.Allowed && t.Decision.Allowed
		}
		if redirected(g) {
			g.Allowed = false
			for j := range g.Takes {
				if t := &g.Takes[j]; t.Source != shard.Redirected {
					t.Source = shard.Undecided
				}
			}
			continue
		}
		for j := range g.Takes {
			t := &g.Takes[j]
			counts, _ := p.countsOf(t.Key, g.Provisional)
			if g.Allowed && !g.Peek {
				counts[t.Key] += t.Cost
			}
			t.Decision.Remaining = counts[t.Key]
		}
	}
}

func (p page) countsOf(k ring.Key, provisional bool) (map[ring.Key]int64, shard.Source) {
	switch {
	case p.owner[k.Partition(p.partitions)] == p.self:
		return p.counts, shard.Owner
	case provisional:
		return p.copies[p.self], shard.Provisional
	}
	return p.counts, shard.Redirected
}

func (p page) Return(takes []shard.Take) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range takes {
		counts, _ := p.countsOf(takes[i].Key, takes[i].Source == shard.Provisional)
		counts[takes[i].Key] -= takes[i].Cost
	}
}

func (page) Keep([]shard.Take) {}

func (l *ledger) move(p uint32, to int) (from int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	from = l.owner[p]
	l.owner[p] = to
	return from
}

// inLedger runs a test in a bubble with nodes that keep one ledger, in which every
// partition is with its owner.
func inLedger(t *testing.T, size int, f func(t *testing.T, c *testCluster, l *ledger)) {
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{partitions: uint32(ring.DefaultParams.Partitions), counts: make(map[ring.Key]int64), owner: make(map[uint32]int)}
		c := newEmptyCluster(t)
		c.standbys = true
		var locals []Local
		var denialLeases []*GivenDenialLeases
		for i := range size {
			l.copies = append(l.copies, make(map[ring.Key]int64))
			locals, denialLeases = append(locals, page{l, i}), append(denialLeases, NewGivenDenialLeases(false, false))
		}
		c.start(locals, denialLeases...)
		defer c.close()
		for p := range l.partitions {
			l.owner[p] = c.view.Ring.Owner(p)
		}
		f(t, c, l)
	})
}

// handOver moves the partition of k from node to node, which takes a while; both know.
func (c *testCluster) handOver(l *ledger, k ring.Key, to int, took time.Duration) {
	p := c.partition(k)
	from := l.move(p, -1)
	c.believe(c.nodes[from], k, c.nodes[to])
	c.believe(c.nodes[to], k, c.nodes[from])
	time.Sleep(took)
	l.move(p, to)
}

// While partitions move about, everything that is asked is counted once, by the
// owner at the time. That holds for handovers that take longer, too: many callers turn the route of a
// partition back and forth meanwhile, and none of them may take that for a partition that is lost.
func TestCallersFollowHandovers(t *testing.T) {
	t.Run("short", func(t *testing.T) { followHandovers(t, 3*time.Millisecond, time.Millisecond) })
	t.Run("long", func(t *testing.T) { followHandovers(t, 11*time.Millisecond, 30*time.Millisecond) })
}

// followHandovers has callers ask about partitions that move, each for slowest at most, and then stay for rest at
// least.
func followHandovers(t *testing.T, slowest, rest time.Duration) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		var keys []ring.Key
		for i := range 6 {
			keys = append(keys, c.ownedBy(c.nodes[i%3], i))
		}
		stop, moving := make(chan struct{}), sync.WaitGroup{}
		for i, k := range keys {
			moving.Go(func() {
				r := rand.New(rand.NewPCG(1, uint64(i)))
				for {
					select {
					case <-stop:
						return
					case <-time.After(rest + time.Duration(r.IntN(20))*time.Millisecond):
					}
					if to := r.IntN(4); l.ownerOf(c.partition(k)) != to {
						c.handOver(l, k, to, slowest-time.Duration(r.IntN(3))*time.Millisecond)
					}
				}
			})
		}
		var mu sync.Mutex
		seen := make(map[ring.Key]map[int64]bool)
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				r := rand.New(rand.NewPCG(2, uint64(i)))
				for range 100 {
					var takes []shard.Take
					for _, j := range r.Perm(len(keys))[:1+r.IntN(3)] {
						takes = append(takes, take(keys[j], 1<<30, 1))
					}
					groups := []shard.Group{{Takes: takes}, {Takes: []shard.Take{take(keys[r.IntN(len(keys))], 1<<30, 1)}}}
					c.nodes[i%4].router.Decide(t.Context(), groups[:1+r.IntN(2)])
					mu.Lock()
					for _, g := range groups {
						for _, take := range g.Takes {
							if take.Source == shard.Undecided && &g.Takes[0] == &groups[1].Takes[0] && !g.Allowed {
								continue // it was not asked
							}
							if take.Source != shard.Owner || !g.Allowed {
								t.Errorf("%+v", g)
							}
							if seen[take.Key] == nil {
								seen[take.Key] = make(map[int64]bool)
							}
							if n := take.Decision.Remaining; seen[take.Key][n] {
								t.Errorf("the answer %d has come twice", n)
							}
							seen[take.Key][take.Decision.Remaining] = true
						}
					}
					mu.Unlock()
					time.Sleep(time.Duration(1+r.IntN(3)) * time.Millisecond)
				}
			})
		}
		callers.Wait()
		close(stop)
		moving.Wait()
		for _, k := range keys {
			if got, want := l.counts[k], int64(len(seen[k])); got != want || want < 500 {
				t.Errorf("%d counted, %d answered", got, want)
			}
		}
		if n := testutil.ToFloat64(c.nodes[0].router.metrics.redirected); n < 10 {
			t.Errorf("%v groups were redirected: hardly anything has moved", n)
		}
	})
}

func (l *ledger) ownerOf(p uint32) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owner[p]
}

// askedFrames returns how many frames each node was asked to decide by f.
func (c *testCluster) askedFrames(f func()) (frames []int64) {
	for _, n := range c.nodes {
		frames = append(frames, -n.frames.Load())
	}
	f()
	for i, n := range c.nodes {
		frames[i] += n.frames.Load()
	}
	return frames
}

// What has moved is found by one more hop, once, and without a pause.
func TestRedirectIsFollowedAndRemembered(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.ownedBy(c.nodes[1], 0)
		c.handOver(l, k, 2, time.Millisecond)
		for i, want := range [][]int64{{0, 1, 1}, {0, 0, 1}} {
			var g shard.Group
			var took time.Duration
			asked := c.askedFrames(func() { g, took = c.nodes[0].ask(t.Context(), take(k, 10, 1)) })
			if !g.Allowed || g.Takes[0].Source != shard.Owner || took != 0 || !slices.Equal(asked, want) {
				t.Errorf("request %d: %+v after %v, asked %v, want %v", i, g, took, asked, want)
			}
		}
		// The former owner and the next one find it as well.
		for _, n := range c.nodes[1:] {
			if g, took := n.ask(t.Context(), take(k, 10, 1)); !g.Allowed || took != 0 {
				t.Errorf("%s: %+v after %v", n.id, g, took)
			}
		}
		if l.counts[k] != 4 {
			t.Errorf("%d counted, want 4", l.counts[k])
		}
	})
}

// A new owner is not asked before the old one says that it should be.
func TestNewViewRoutesToTheFormerOwner(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		members := slices.Clone(c.view.Members)
		c.setView(members[:2])
		var k ring.Key
		for i := 0; ; i++ { // one that a keeps, and one that comes to c
			if k = c.ownedBy(c.nodes[1], i); l.owner[c.partition(k)] == 2 {
				break
			}
		}
		c.handOver(l, k, 1, time.Millisecond)
		c.nodes[0].ask(t.Context(), take(k, 10, 1)) // b, whom c was left for
		c.setView(members)
		for i, want := range [][]int64{{0, 1, 0}, {0, 1, 1}, {0, 0, 1}} {
			if i == 1 {
				c.handOver(l, k, 2, time.Millisecond)
			}
			var g shard.Group
			asked := c.askedFrames(func() { g, _ = c.nodes[0].ask(t.Context(), take(k, 10, 1)) })
			if !g.Allowed || g.Takes[0].Source != shard.Owner || !slices.Equal(asked, want) {
				t.Errorf("request %d: %+v, asked %v, want %v", i, g, asked, want)
			}
		}
	})
}

// Two that say of each other that they have it are not asked for ever, at any node.
// Then the owner decides from what it has of it.
func TestNodesThatPointAtEachOther(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.ownedBy(c.nodes[1], 0)
		l.move(c.partition(k), -1)
		c.believe(c.nodes[1], k, c.nodes[2])
		c.believe(c.nodes[2], k, c.nodes[1])
		for i, n := range c.nodes {
			for range 3 {
				var g shard.Group
				var took time.Duration
				asked := c.askedFrames(func() { g, took = n.ask(t.Context(), take(k, 10, 1)) })
				sum := asked[0] + asked[1] + asked[2]
				if g.Takes[0].Source != shard.Provisional || took > maxHops*hopPause || sum > 1+maxHops+2+relayHops {
					t.Errorf("%d: %+v after %v, asked %v", i, g, took, asked)
				}
			}
		}
		if l.copies[1][k] != 9 {
			t.Errorf("%v counted of copies, want 9 by the owner", l.copies)
		}
		// A caller in a hurry is not kept.
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, took := c.nodes[0].ask(ctx, take(k, 10, 1)); took >= 4*time.Millisecond {
			t.Errorf("a caller with 10 ms was kept for %v", took)
		}
	})
}

// A node that knows of no other owner is asked a few times more, and as soon as it has it, it
// answers.
func TestOwnerThatIsStillFetching(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.ownedBy(c.nodes[1], 0)
		p := c.partition(k)
		l.move(p, -1)
		time.AfterFunc(2*hopPause+hopPause/2, func() { l.move(p, 1) })
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Owner || took != 3*hopPause {
			t.Errorf("%+v after %v", g, took)
		}
		l.move(p, -1)
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Provisional || took != maxLost*hopPause || l.copies[1][k] != 1 {
			t.Errorf("%+v after %v", g, took)
		}
	})
}

// A group of which a part has moved is asked for in parts, and counted whole.
func TestGroupOfWhichAPartMoves(t *testing.T) {
	inLedger(t, 4, func(t *testing.T, c *testCluster, l *ledger) {
		var takes []shard.Take
		for i := range 4 {
			takes = append(takes, take(c.ownedBy(c.nodes[1], i), 10, 1))
		}
		takes[3].Limit.Algorithm = algorithms.TokenBucket // looks first, where it is a part
		c.handOver(l, takes[1].Key, 2, time.Millisecond)
		c.handOver(l, takes[3].Key, 2, time.Millisecond)
		for i := range 3 {
			g, took := c.nodes[0].ask(t.Context(), slices.Clone(takes)...)
			if !g.Allowed || took > hopPause || slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return t.Source != shard.Owner }) {
				t.Errorf("request %d: %+v after %v", i, g, took)
			}
		}
		// Now a part of it parts.
		c.handOver(l, takes[2].Key, 3, time.Millisecond)
		c.handOver(l, takes[3].Key, 1, time.Millisecond)
		c.nodes[0].ask(t.Context(), slices.Clone(takes)...)
		for i, take := range takes {
			if got := l.counts[take.Key]; got != 4 {
				t.Errorf("take %d: %d counted, want 4", i, got)
			}
		}
	})
}

// A redirect to a node that does not answer is forgotten for the owner.
func TestRedirectToANodeThatDoesNotAnswer(t *testing.T) {
	inLedger(t, 3, func(t *testing.T, c *testCluster, l *ledger) {
		k := c.ownedBy(c.nodes[1], 0)
		c.handOver(l, k, 2, time.Millisecond)
		c.nodes[0].ask(t.Context(), take(k, 10, 1))
		c.cut(c.nodes[0], c.nodes[2])
		synctest.Wait()
		c.handOver(l, k, 1, time.Millisecond)
		if g, took := c.nodes[0].ask(t.Context(), take(k, 10, 1)); g.Takes[0].Source != shard.Owner || took != 0 {
			t.Errorf("%+v after %v", g, took)
		}
	})
}

func TestRoutesOfANewTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRouter(RouterConfig{Self: "b", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		view := func(owners []uint16, ids ...string) *View {
			v := &View{}
			for _, id := range ids {
				v.Members = append(v.Members, Member{ID: id})
			}
			var err error
			if v.Ring, err = ring.FromTables(owners, owners, len(ids)); err != nil {
				t.Fatal(err)
			}
			return v
		}
		ids := func(x *routingTable) (s string) {
			for p := range x.routes {
				s += x.view.Members[x.routes[p].Load()].ID
			}
			return s
		}
		first := r.newTable(view([]uint16{0, 0, 1, 1, 2, 2}, "a", "b", "c"), nil)
		if got := ids(first); got != "aabbcc" || first.self != 1 {
			t.Errorf("the first: %s, self %d", got, first.self)
		}
		keyOf := func(p uint64) ring.Key { return ring.Key{Lo: (p<<32 + 5) / 6} } // of six
		first.redirect(keyOf(1), 0, markOf("c"))
		first.redirect(keyOf(1), 2, markOf("c")) // itself, but it is not the owner
		if got := ids(first); got != "aabbcc" {
			t.Errorf("a node is asked again that does not have it: %s", got)
		}
		first.redirect(keyOf(1), 0, markOf("c"))
		first.redirect(keyOf(2), 0, markOf("c")) // a is not asked for it
		first.redirect(keyOf(3), 1, markOf("x")) // no member
		first.redirect(keyOf(4), 2, markOf("c")) // itself
		first.redirect(keyOf(5), 2, markOf("b"))
		first.redirect(keyOf(5), 1, 0) // any node
		if got := ids(first); got != "acbbcc" {
			t.Errorf("redirected: %s", got)
		}
		for want, v := range map[string]*View{
			"acbbcc": view([]uint16{3, 3, 3, 3, 3, 3}, "a", "b", "c", "d"), // d has fetched nothing yet
			"dcddcc": view([]uint16{1, 1, 1, 1, 1, 1}, "c", "d"),
			"aadd":   view([]uint16{0, 0, 1, 1}, "a", "d"), // another ring
		} {
			if got := ids(r.newTable(v, first)); got != want {
				t.Errorf("then: %s, want %s", got, want)
			}
		}
		if g := (&shard.Group{Takes: []shard.Take{{Key: keyOf(0)}, {Key: keyOf(1)}}}); first.forsake(0, g) || !first.forsake(2, g) || ids(first) != "aabbcc" {
			t.Errorf("forsaken: %s", ids(first))
		}
	})
}

// fetch moves the partition of k with all that it holds, and as the node that fetches it does.
func (c *testCluster) fetch(k ring.Key, from, to *testNode) {
	p := c.partition(k)
	c.believe(to, k, from)
	from.shard.Follow(p, shard.ToSuccessor)
	to.shard.Clear(p)
	ship := func() {
		for more := true; more; {
			var records []byte
			records, more = from.shard.Changes(p, shard.ToSuccessor, nil, 1<<10)
			if err := to.shard.Apply(p, records); err != nil {
				c.t.Error(err)
			}
			time.Sleep(100 * time.Microsecond)
		}
	}
	ship()
	from.shard.Seal(p)
	c.believe(from, k, to)
	ship()
	from.shard.Unfollow(p, shard.ToSuccessor)
	to.denialLeases.Opened(p, c.view.Ring.Partitions())
	to.shard.Unseal(p)
}

// Limits hold exactly while their counters move about.
func TestLimitsHoldWhileCountersMove(t *testing.T) {
	inForgetfulCluster(t, func(t *testing.T, c *testCluster) { c.holdLimitsWhileCountersMove(0, 1000) })
}

// What is lent or given back on the way may be lost, and is not used then.
func TestLimitsHoldWhileHotCountersMove(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) { c.holdLimitsWhileCountersMove(0.1, 900) })
}

// holdLimitsWhileCountersMove has 6000 takes asked for of three limits of 1000, some of
// them two in a group, and wants at least that number of each to be allowed.
func (c *testCluster) holdLimitsWhileCountersMove(pairs float64, least int64) {
	t := c.t
	const limit = 1000
	keys := []ring.Key{c.ownedBy(c.nodes[0], 0), c.ownedBy(c.nodes[1], 0), c.ownedBy(c.nodes[2], 0)}
	stop, moving := make(chan struct{}), sync.WaitGroup{}
	for i, k := range keys {
		moving.Go(func() {
			for at := i; ; at++ {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
				}
				c.fetch(k, c.nodes[at%3], c.nodes[(at+1)%3])
			}
		})
	}
	var allowed [3]atomic.Int64
	var callers sync.WaitGroup
	for i := range 30 {
		callers.Go(func() {
			r := rand.New(rand.NewPCG(3, uint64(i)))
			for range 200 {
				j := r.IntN(3)
				takes := []shard.Take{take(keys[j], limit, 1)}
				if r.Float64() < pairs {
					takes = append(takes, take(keys[(j+1)%3], limit, 1))
				}
				g, _ := c.nodes[i%3].ask(t.Context(), takes...)
				for n := range g.Takes {
					if s := g.Takes[n].Source; s != shard.Owner && s != shard.Lent {
						t.Errorf("%+v", g)
					}
					if g.Allowed {
						allowed[(j+n)%3].Add(1)
					}
				}
				time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
			}
		})
	}
	callers.Wait()
	close(stop)
	moving.Wait()
	for i := range keys {
		if got := allowed[i].Load(); got > limit || got < least {
			t.Errorf("key %d: %d allowed of %d, want at least %d", i, got, limit, least)
		}
	}
}

// A node that has lost a partition names itself, so that its standby is asked at once.
func TestLostPartitionNamesItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		a, b := c.nodes[0], c.nodes[1]
		k := c.ownedBy(a, 0)
		c.believe(a, k, a)
		if got := a.router.table.Load().ownerMark(k); got != markOf(a.id) {
			t.Errorf("it names %x", got)
		}
		c.believe(a, k, b)
		if got := a.router.table.Load().ownerMark(k); got != markOf(b.id) {
			t.Errorf("it names %x instead of b", got)
		}
	})
}
