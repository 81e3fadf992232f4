package cluster

import (
	"context"
	"log/slog"
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

func TestThreeNodesShareOneLimitExactly(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		key := c.ownedBy(c.nodes[1], 0)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() {
				g, _ := c.nodes[i%3].ask(t.Context(), take(key, 1000, 1))
				if s := g.Takes[0].Source; s != shard.Owner && s != shard.Lent {
					t.Error("neither the owner nor a lease of it answered")
				}
				if g.Allowed {
					allowed.Add(1)
				}
			})
		}
		wg.Wait()
		if got := allowed.Load() + c.lent(key); got != 1000 {
			t.Errorf("%d of 5000 allowed, want 1000", got)
		}
		// Without a timer, checks that are sent together travel together.
		if frames := c.nodes[1].frames.Load(); frames > 1000 {
			t.Errorf("%d frames for 3333 forwarded requests", frames)
		}
	})
}

func TestForwardingWaitsForNoTimer(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		g, took := c.nodes[0].ask(t.Context(), take(c.ownedBy(c.nodes[2], 0), 10, 3))
		if took != 0 || !g.Allowed || g.Takes[0].Decision.Remaining != 7 {
			t.Errorf("%+v after %v", g, took)
		}
	})
}

func TestStalledOwnerIsGivenUpInTime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		defer resume()
		for _, tc := range []struct{ deadline, want time.Duration }{
			{0, 25 * time.Millisecond},
			{time.Second, 25 * time.Millisecond},
			{10 * time.Millisecond, 4 * time.Millisecond},
		} {
			ctx := t.Context()
			if tc.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, tc.deadline)
				defer cancel()
			}
			g, took := c.nodes[0].ask(ctx, take(c.ownedBy(c.nodes[2], 0), 10, 1))
			if took != tc.want || !g.Allowed || g.Takes[0].Source != shard.Undecided {
				t.Errorf("deadline %v: %+v after %v, want undecided after %v", tc.deadline, g, took, tc.want)
			}
		}
	})
}

// One alarm serves all callers that wait: each is given up
// when its own time is over, in any order of calls.
func TestEachIsGivenUpInTime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		defer resume()
		asked := make(chan struct{})
		for _, tc := range []struct{ after, deadline, want time.Duration }{
			{0, 0, DefaultAttemptTimeout},
			{time.Millisecond, 10 * time.Millisecond, 4 * time.Millisecond},
			{time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond},
			{6 * time.Millisecond, 0, DefaultAttemptTimeout},
			{7 * time.Millisecond, 20 * time.Millisecond, 8 * time.Millisecond},
		} {
			go func() {
				defer func() { asked <- struct{}{} }()
				time.Sleep(tc.after)
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				if g, took := c.nodes[0].ask(ctx, take(c.ownedBy(c.nodes[2], 0), 10, 1)); took != tc.want || g.Takes[0].Source != shard.Undecided {
					t.Errorf("after %v, with a deadline of %v: %+v after %v, want undecided after %v", tc.after, tc.deadline, g, took, tc.want)
				}
			}()
		}
		for range 5 {
			<-asked
		}
	})
}

func TestCallersWithoutTimeAreNotCounted(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		key := c.ownedBy(c.nodes[2], 0)
		if g, took := c.nodes[0].ask(ctx, take(key, 10, 1)); took != 0 || g.Takes[0].Source != shard.Undecided {
			t.Errorf("%+v after %v", g, took)
		}
		if g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 0)); g.Takes[0].Decision.Remaining != 10 {
			t.Errorf("the request of a caller that was gone has been counted: %+v", g)
		}
	})
}

func TestKilledOwnerCostsNoTime(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		key := c.ownedBy(c.nodes[2], 0)
		resume := c.nodes[2].stall()
		answered := make(chan time.Duration)
		go func() {
			_, took := c.nodes[0].ask(t.Context(), take(key, 10, 1))
			answered <- took
		}()
		synctest.Wait() // the request is with the owner
		go resume()     // or its server would not stop
		c.kill(c.nodes[2])
		if took := <-answered; took != 0 {
			t.Errorf("a request under way came back after %v", took)
		}
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(key, 10, 1)); took != 0 || g.Takes[0].Source != shard.Undecided {
			t.Errorf("%+v after %v", g, took)
		}
		time.Sleep(time.Minute)
		c.serve(c.nodes[2])
		time.Sleep(2 * probeEvery)
		if g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 1)); g.Takes[0].Source != shard.Owner {
			t.Errorf("after the owner is back: %+v", g)
		}
	})
}

func TestGroupAcrossNodesIsTakenWholeOrNotAtAll(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		a, b, third := c.ownedBy(c.nodes[0], 0), c.ownedBy(c.nodes[1], 0), c.ownedBy(c.nodes[2], 0)
		group := func(cost int64) []shard.Take {
			return []shard.Take{take(a, 10, cost), take(b, 5, cost), take(third, 10, cost), take(a.With(1), 10, cost)}
		}
		remaining := func(g shard.Group) (r []int64) {
			for _, t := range g.Takes {
				r = append(r, t.Decision.Remaining)
			}
			return r
		}
		for i, tc := range []struct {
			cost      int64
			allowed   bool
			remaining []int64
		}{
			{3, true, []int64{7, 2, 7, 7}},
			{3, false, []int64{7, 2, 7, 7}}, // b has room for 2 only
			{2, true, []int64{5, 0, 5, 5}},
			{1, false, []int64{5, 0, 5, 5}},
		} {
			g, _ := c.nodes[i%3].ask(t.Context(), group(tc.cost)...)
			if g.Allowed != tc.allowed || !slices.Equal(remaining(g), tc.remaining) {
				t.Errorf("step %d: allowed %v, remaining %v, want %+v", i, g.Allowed, remaining(g), tc)
			}
			synctest.Wait() // no caller waits for what is given back
			if look, _ := c.nodes[(i+1)%3].ask(t.Context(), group(0)...); !slices.Equal(remaining(look), tc.remaining) {
				t.Errorf("step %d, looked up: %v, want %v", i, remaining(look), tc.remaining)
			}
		}
	})
}

// A group that has more takes than one request holds is taken whole or not at all, too.
func TestGroupOfManyTakes(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		for n, owners := range [][]*testNode{c.nodes[:1], c.nodes[1:2], c.nodes} {
			var takes, looks []shard.Take
			for i := range 8 * maxTakes {
				takes = append(takes, take(c.ownedBy(owners[i%len(owners)], 0).With(uint64(n<<20+i)), 10, 3))
				if i%100 == 0 {
					looks = append(looks, take(takes[i].Key, 10, 0))
				}
			}
			last := takes[len(takes)-1].Key
			c.nodes[0].ask(t.Context(), take(last, 10, 6))
			for i, allowed := range []bool{true, false, false} { // the last one has room for one cost only
				began := time.Now()
				g, _ := c.nodes[0].ask(t.Context(), slices.Clone(takes)...)
				undecided := make(map[shard.Source]int) // takes
				for _, t := range g.Takes {
					if t.Source != shard.Owner {
						undecided[t.Source]++
					}
				}
				if g.Allowed != allowed || len(undecided) > 0 {
					t.Errorf("%d owners, %d: allowed %v after %v, undecided by source: %v", len(owners), i, g.Allowed, time.Since(began), undecided)
				}
				synctest.Wait() // no caller waits for what is given back
				look, _ := c.nodes[2].ask(t.Context(), slices.Clone(looks)...)
				for j, l := range look.Takes {
					if l.Decision.Remaining != 7 {
						t.Fatalf("%d owners, %d: look %d: %d remain, want 7", len(owners), i, j, l.Decision.Remaining)
					}
				}
			}
		}
	})
}

func TestBatchGoesToEveryOwnerAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		var groups []shard.Group
		for i := range 300 {
			groups = append(groups, shard.Group{Takes: []shard.Take{take(c.ownedBy(c.nodes[i%3], i/3), int64(i), 1)}})
		}
		groups = append(groups, shard.Group{}) // no limit applies
		resume := c.nodes[1].stall()
		start := time.Now()
		c.nodes[0].router.Decide(t.Context(), groups)
		if took := time.Since(start); took != DefaultAttemptTimeout {
			t.Errorf("took %v, want the %v of the owner that does not answer", took, DefaultAttemptTimeout)
		}
		resume()
		for i, g := range groups[:300] {
			want := shard.Owner
			if i%3 == 1 {
				want = shard.Undecided
			}
			if got := g.Takes[0].Source; got != want {
				t.Errorf("group %d: source %d, want %d", i, got, want)
			}
			if want == shard.Owner && g.Takes[0].Decision.Remaining != max(0, int64(i)-1) {
				t.Errorf("group %d of limit %d: %+v", i, i, g)
			}
		}
		if !groups[300].Allowed {
			t.Error("a group without takes was denied")
		}
	})
}

func TestNoViewNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRouter(RouterConfig{Self: "a", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		groups := []shard.Group{{Takes: []shard.Take{take(ring.Key{}, 1, 1)}}}
		r.Decide(t.Context(), groups)
		if !groups[0].Allowed || groups[0].Takes[0].Source != shard.Undecided {
			t.Errorf("%+v", groups[0])
		}
	})
}

func TestNewViewFinishesChecksUnderWay(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		old := c.nodes[0].router.peers[Member{ID: "c", Address: "c:1"}]
		answered := make(chan shard.Group)
		go func() {
			g, _ := c.nodes[0].ask(t.Context(), take(c.ownedBy(c.nodes[2], 0), 10, 1))
			answered <- g
		}()
		synctest.Wait()
		c.setView(c.view.Members[:2])
		time.Sleep(DefaultAttemptTimeout / 2)
		resume()
		if g := <-answered; g.Takes[0].Source != shard.Owner {
			t.Errorf("the old owner's answer was lost: %+v", g)
		}
		if c.nodes[0].router.Reaches("c") {
			t.Error("a node that is no member is reached")
		}
		time.Sleep(DefaultAttemptTimeout + retireGrace)
		synctest.Wait()
		old.conns[0].mu.Lock()
		if old.conns[0].conn != nil {
			t.Error("the conn to it is open")
		}
		old.conns[0].mu.Unlock()
		if n := testutil.CollectAndCount(c.nodes[0].router.metrics.forwarded); n != 4 {
			t.Errorf("%d series, want 4 of the one peer that is left", n)
		}
		for _, n := range c.nodes { // c itself is no member any more and forwards all
			if g, _ := n.ask(t.Context(), take(c.ownedBy(c.nodes[1], 5), 10, 1)); g.Takes[0].Source != shard.Owner {
				t.Errorf("%s in the new view: %+v", n.id, g)
			}
		}
	})
}

// A member that stays is asked over the same conns, also after it was restarted, and a
// node asks itself over none.
func TestPeersOutliveViews(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		old := make([]*routingTable, len(c.nodes))
		for i, n := range c.nodes {
			old[i] = n.router.table.Load()
		}
		for range 2 {
			members := slices.Clone(c.view.Members)
			members[2].Incarnation++
			c.nodes[2].greeter.become(members[2].Incarnation)
			c.setView(members)
		}
		time.Sleep(time.Minute)
		for i, n := range c.nodes {
			n.conns.mu.Lock()
			if got, want := len(n.conns.conns), 2*connsPerPeer(); got != want {
				t.Errorf("%s: %d conns come in, want %d", n.id, got, want)
			}
			n.conns.mu.Unlock()
			if n.router.Reaches("aa") {
				t.Errorf("%s reaches a node that is no member", n.id)
			}
			got := n.router.table.Load().peers
			if !slices.Equal(got, old[i].peers) || got[i] != nil {
				t.Errorf("%s: peers %p, they were %p", n.id, got, old[i].peers)
			}
		}
	})
}

func TestOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRouter(RouterConfig{Self: "a", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		if got := r.Owner(ring.Key{}); got != "" {
			t.Errorf("without a view %q owns a counter", got)
		}
	})
	inCluster(t, func(t *testing.T, c *testCluster) {
		for _, n := range c.nodes {
			for i := range 20 {
				if got := c.nodes[0].router.Owner(c.ownedBy(n, i)); got != n.id {
					t.Errorf("key %d of %s is owned by %q", i, n.id, got)
				}
			}
		}
	})
}

func TestOverflowIsRefusedAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		key := c.ownedBy(c.nodes[2], 0)
		groups := make([]shard.Group, maxPending)
		for i := range groups {
			groups[i].Takes = []shard.Take{take(key, 10, 0)}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.nodes[0].router.Decide(t.Context(), groups)
		}()
		synctest.Wait()
		g, took := c.nodes[0].ask(t.Context(), take(key, 10, 1))
		if took != 0 || g.Allowed || g.Takes[0].Source != shard.Overloaded || g.Takes[0].Decision != (algorithms.Decision{}) {
			t.Errorf("%+v after %v", g, took)
		}
		shadow := take(key, 10, 1)
		shadow.Shadow = true
		if g, _ := c.nodes[0].ask(t.Context(), shadow); !g.Allowed || g.Takes[0].Source != shard.Overloaded {
			t.Errorf("a shadow: %+v", g)
		}
		there := take(c.ownedBy(c.nodes[1], 0), 10, 1)
		if g, _ := c.nodes[0].ask(t.Context(), there, take(key, 10, 1)); g.Allowed || c.used(there) != 0 {
			t.Errorf("with another: %+v", g)
		}
		overflow := c.nodes[0].router.metrics.forwarded.WithLabelValues("c", "overflow")
		if got := testutil.ToFloat64(overflow); got != 3 {
			t.Errorf("%v overflows counted, want 3", got)
		}
		resume()
		<-done
	})
}

// A member that cannot be dialled keeps no caller from asking the others.
func TestMemberThatCannotBeDialled(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.setView([]Member{{ID: "a", Address: "a:1"}, {ID: "c", Address: "c:1"}, {ID: "d", Address: "%zz"}})
		time.Sleep(time.Minute)
		for i, n := range []*testNode{c.nodes[2], {id: "d"}} {
			g, took := c.nodes[0].ask(t.Context(), take(c.ownedBy(n, 0), 10, 1))
			want := []shard.Source{shard.Owner, shard.Undecided}[i]
			if g.Takes[0].Source != want || !g.Allowed || took != 0 {
				t.Errorf("%s: %+v after %v", n.id, g, took)
			}
		}
	})
}

// A node that comes back at another address is another peer, with the same metrics.
func TestNodeMovesToAnotherAddress(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		key := c.ownedBy(c.nodes[2], 0)
		c.nodes[0].ask(t.Context(), take(key, 10, 1))
		c.mu.Lock()
		c.listeners["c:2"] = c.listeners["c:1"]
		c.mu.Unlock()
		c.setView([]Member{{ID: "a", Address: "a:1"}, {ID: "b", Address: "b:1"}, {ID: "c", Address: "c:2"}})
		time.Sleep(time.Second)
		if g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 1)); g.Takes[0].Source != shard.Owner {
			t.Errorf("%+v", g)
		}
		if n := testutil.CollectAndCount(c.nodes[0].router.metrics.forwarded); n != 8 {
			t.Errorf("%d series, want 4 of each of 2 peers", n)
		}
	})
}

// After Close no peer is dialed any more: a view that comes late starts no peers.
func TestNoViewAfterClose(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		r := c.nodes[0].router
		before := r.View()
		r.Close()
		later := &View{Number: before.Number + 1, Members: before.Members, Ring: before.Ring}
		if r.SetView(later); r.View() != before {
			t.Errorf("view %d was adopted", r.View().Number)
		}
	})
}

func TestBreakerOpensOnTimeoutsAndHeals(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		key := c.ownedBy(c.nodes[2], 0)
		for range tripAfter {
			c.nodes[0].ask(t.Context(), take(key, 10, 1))
		}
		if _, took := c.nodes[0].ask(t.Context(), take(key, 10, 1)); took != 0 || c.nodes[0].router.Reaches("c") {
			t.Errorf("the peer is taken for healthy after %d timeouts: %v", tripAfter, took)
		}
		resume()
		time.Sleep(2 * probeEvery)
		g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 1))
		// What the owner has counted although it was given up was given back.
		if g.Takes[0].Source != shard.Owner || g.Takes[0].Decision.Remaining != 9 {
			t.Errorf("after the owner is back: %+v", g)
		}
	})
}

func TestSilentPeerIsDetectedWithoutChecks(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		time.Sleep(time.Minute)
		if !c.nodes[0].router.Reaches("c") {
			t.Fatal("an idle minute has opened the breaker")
		}
		resume := c.nodes[2].stall()
		defer resume()
		// The stream's goroutine at the owner now hangs, so that pings are not answered.
		go c.nodes[0].ask(t.Context(), take(c.ownedBy(c.nodes[2], 0), 10, 1))
		time.Sleep(silence + 2*probeEvery)
		if c.nodes[0].router.Reaches("c") {
			t.Error("the peer is still taken for healthy")
		}
	})
}
