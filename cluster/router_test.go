package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// testNode is a router and a shard with real gRPC over an in-memory connection.
type testNode struct {
	id       string
	shard    *shard.Shard
	local    Local // what decides, mostly the shard
	router   *Router
	server   *grpc.Server
	links    *Server
	promises *Promises
	takes    atomic.Int64  // of the peers' groups that were not only looked at
	frames   atomic.Int64  // of questions that the node has been asked to decide
	pause    chan struct{} // closed to let peers' questions through; nil for always
	mu       sync.Mutex    // guards pause

	perTake atomic.Int64 // nanoseconds that a take of a peer needs
}

// Decide implements Local for the peers' questions.
func (n *testNode) Decide(groups []shard.Group) {
	n.frames.Add(1)
	for i := range groups {
		if !groups[i].Peek {
			n.takes.Add(1)
		}
	}
	n.mu.Lock()
	pause := n.pause
	n.mu.Unlock()
	if pause != nil {
		<-pause
	}
	if each := n.perTake.Load(); each > 0 {
		takes := 0
		for i := range groups {
			takes += len(groups[i].Takes)
		}
		time.Sleep(time.Duration(each) * time.Duration(takes))
	}
	n.local.Decide(groups)
}

func (n *testNode) Return(takes []shard.Take) { n.local.Return(takes) }

// stall makes the node answer no peer until the returned function is called.
func (n *testNode) stall() (resume func()) {
	c := make(chan struct{})
	n.mu.Lock()
	n.pause = c
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.pause = nil
		n.mu.Unlock()
		close(c)
	}
}

// testCluster is some nodes, and who can dial whom.
type testCluster struct {
	t         *testing.T
	nodes     []*testNode
	mu        sync.Mutex
	listeners map[string]*pipeListener // by address; guarded by mu
	holders   map[[2]string]string     // by node and partition, who has it; guarded by mu
	links     map[[2]string][]net.Conn // by who has dialled which address; guarded by mu
	cuts      map[[2]string]bool       // who cannot dial which address; guarded by mu
	lossy     map[[2]string]bool       // between whom and which address all is lost; guarded by mu
	reaching  map[string][]string      // by node, who reaches all owners, as far as it knows; guarded by mu
	view      *View
	former    string // who has the copies instead of the standby; or ""
	telling   bool   // whether all tell whom they reach
	standbys  bool   // whether views have any; without, the policies show
}

// testHolders are the Holders of the node self.
type testHolders struct {
	*testCluster
	self string
}

func (h testHolders) Holder(p uint32) (id string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, ok = h.holders[[2]string{h.self, fmt.Sprint(p)}]
	return id, ok
}

// tell has the node of that id believe that others reach all owners.
func (c *testCluster) tell(id string, others ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reaching[id] = others
}

// Reaching says what was set for this node, or else, if all tell, of all that they reach all others that are not cut
// off from them.
func (h testHolders) Reaching(id string) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		if h.telling && n.id != id && n.id != h.self && !h.cuts[[2]string{n.id, id + ":1"}] {
			ids = append(ids, n.id)
		}
	}
	return append(ids, h.reaching[h.self]...)
}

func (testHolders) Returning() <-chan struct{} { return nil }

func (h testHolders) Copy(uint32) (whole, best bool) {
	if h.former == "" {
		return false, true
	}
	return h.self == h.former, false
}

func (h testHolders) CopyAt(uint32) string { return h.former }

// believe makes n believe that the counter of k is with the node holder.
func (c *testCluster) believe(n *testNode, k ring.Key, holder *testNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders[[2]string{n.id, fmt.Sprint(c.partition(k))}] = holder.id
}

func (c *testCluster) partition(k ring.Key) uint32 { return k.Partition(c.view.Ring.Partitions()) }

func newTestCluster(t *testing.T, size int) *testCluster {
	var promises []*Promises
	for range size {
		promises = append(promises, NewPromises(true, true))
	}
	return newTestClusterOf(t, promises...)
}

// newTestClusterOf returns a cluster of as many nodes as there are promises.
func newTestClusterOf(t *testing.T, promises ...*Promises) *testCluster {
	c := newEmptyCluster(t)
	c.start(nil, promises...)
	return c
}

func newEmptyCluster(t *testing.T) *testCluster {
	return &testCluster{
		t: t, listeners: make(map[string]*pipeListener),
		holders: make(map[[2]string]string), links: make(map[[2]string][]net.Conn), cuts: make(map[[2]string]bool),
		lossy: make(map[[2]string]bool), reaching: make(map[string][]string),
	}
}

// start adds as many nodes as there are promises, and has locals decide, if there are
// any, instead of shards.
func (c *testCluster) start(locals []Local, promises ...*Promises) {
	var members []Member
	for i := range promises {
		id := string(rune('a' + i))
		s, err := shard.New(shard.Config{Partitions: uint32(ring.DefaultParams.Partitions), MaxBytes: 64 << 20, Metrics: prometheus.NewRegistry()})
		if err != nil {
			c.t.Fatal(err)
		}
		n := &testNode{id: id, shard: s, local: s, promises: promises[i]}
		if locals != nil {
			n.local = locals[i]
		}
		dial := func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, id, address) }
		n.router = NewRouter(RouterConfig{Self: id, Local: n.local, Holders: testHolders{c, id}, Promises: n.promises, Dial: dial, AttemptTimeout: DefaultAttemptTimeout, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		c.nodes = append(c.nodes, n)
		c.serve(n)
		members = append(members, Member{ID: id, Address: id + ":1", Incarnation: 1})
	}
	c.setView(members)
	synctest.Wait()
}

func (c *testCluster) setView(members []Member) {
	v, err := nextView(ring.DefaultParams, c.view, members, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	if owner, _ := v.Ring.Tables(); !c.standbys {
		if v.Ring, err = ring.FromTables(owner, owner, len(v.Members)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.view = v
	for _, n := range c.nodes {
		n.router.SetView(v)
		for p := range v.Ring.Partitions() { // handed over at once, and empty
			if v.Members[v.Ring.Owner(p)].ID == n.id {
				n.shard.Open(p)
			} else {
				n.shard.Close(p)
			}
		}
	}
}

func (c *testCluster) serve(n *testNode) {
	l := newPipeListener()
	n.links = NewServer(n, n.promises, n.router)
	n.server = grpc.NewServer(grpc.Creds(n.links.Credentials(insecure.NewCredentials())))
	c.mu.Lock()
	c.listeners[n.id+":1"] = l
	c.mu.Unlock()
	go func() { _ = n.server.Serve(l) }()
}

func (c *testCluster) kill(n *testNode) {
	c.mu.Lock()
	c.listeners[n.id+":1"].Close()
	delete(c.listeners, n.id+":1")
	c.mu.Unlock()
	n.server.Stop()
	n.links.Close()
}

func (c *testCluster) dial(ctx context.Context, from, address string) (net.Conn, error) {
	way := [2]string{from, address}
	c.mu.Lock()
	l, cut := c.listeners[address], c.cuts[way]
	c.mu.Unlock()
	if l == nil || cut {
		return nil, fmt.Errorf("%s: connection refused", address)
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.links[way] = append(c.links[way], conn)
	c.mu.Unlock()
	return lossyConn{conn, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.lossy[way]
	}, new(atomic.Bool)}, sendPreface(conn)
}

// lose loses all that is sent from one node to another, on the links that it has opened, and all
// answers.
func (c *testCluster) lose(from, to *testNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lossy[[2]string{from.id, to.id + ":1"}] = true
}

// cut ends the links from one node to another, and lets it open no more.
func (c *testCluster) cut(from, to *testNode) {
	way := [2]string{from.id, to.id + ":1"}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[way] = true
	for _, conn := range c.links[way] {
		_ = conn.Close()
	}
}

func (c *testCluster) close() {
	for _, n := range c.nodes {
		n.router.Close()
	}
	for _, n := range c.nodes {
		n.server.Stop()
		n.links.Close()
	}
}

// inCluster runs a test in a bubble with a cluster of three.
func inCluster(t *testing.T, f func(t *testing.T, c *testCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCluster(t, 3)
		defer c.close()
		f(t, c)
	})
}

// inForgetfulCluster is inCluster with nodes that ask for everything.
func inForgetfulCluster(t *testing.T, f func(t *testing.T, c *testCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestClusterOf(t, NewPromises(false, false), NewPromises(false, false), NewPromises(false, false))
		defer c.close()
		f(t, c)
	})
}

// ownedBy returns the i-th key that the node owns.
func (c *testCluster) ownedBy(n *testNode, i int) ring.Key {
	owner, _ := c.view.Index(n.id)
	for j := 0; ; j++ {
		k := ring.Hasher{}.Key(fmt.Append(nil, j))
		if c.view.Ring.Owner(k.Partition(c.view.Ring.Partitions())) == owner {
			if i == 0 {
				return k
			}
			i--
		}
	}
}

func perHour(limit int64) algorithms.Limit {
	return algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: limit, Window: int64(time.Hour)}
}

func take(k ring.Key, limit, cost int64) shard.Take {
	return shard.Take{Key: k, Limit: perHour(limit), Cost: cost}
}

// ask decides one group, and says how long that took.
func (n *testNode) ask(ctx context.Context, takes ...shard.Take) (shard.Group, time.Duration) {
	groups := []shard.Group{{Takes: takes}}
	start := time.Now()
	n.router.Decide(ctx, groups)
	return groups[0], time.Since(start)
}

func TestThreeNodesShareOneLimitExactly(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		key := c.ownedBy(c.nodes[1], 0)
		var allowed atomic.Int64
		var wg sync.WaitGroup
		for i := range 5000 {
			wg.Go(func() {
				g, _ := c.nodes[i%3].ask(t.Context(), take(key, 1000, 1))
				if s := g.Takes[0].Source; s != shard.Owner && s != shard.Lent {
					t.Error("neither the owner nor a loan of it answered")
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
		// Without a timer, whatever asks together travels together.
		if frames := c.nodes[1].frames.Load(); frames > 1000 {
			t.Errorf("%d frames for 3333 forwarded questions", frames)
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
			if took != tc.want || !g.Allowed || g.Takes[0].Source != shard.Unanswered {
				t.Errorf("deadline %v: %+v after %v, want unanswered after %v", tc.deadline, g, took, tc.want)
			}
		}
	})
}

// One alarm is for all who wait: each is given up when his own time is over, whoever has asked
// before or after him.
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
				if g, took := c.nodes[0].ask(ctx, take(c.ownedBy(c.nodes[2], 0), 10, 1)); took != tc.want || g.Takes[0].Source != shard.Unanswered {
					t.Errorf("after %v, with a deadline of %v: %+v after %v, want unanswered after %v", tc.after, tc.deadline, g, took, tc.want)
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
		if g, took := c.nodes[0].ask(ctx, take(key, 10, 1)); took != 0 || g.Takes[0].Source != shard.Unanswered {
			t.Errorf("%+v after %v", g, took)
		}
		if g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 0)); g.Takes[0].Decision.Remaining != 10 {
			t.Errorf("the request of a caller that was gone has been counted: %+v", g)
		}
	})
}

func TestBreakerOpensOnTimeoutsAndClosesByItself(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		resume := c.nodes[2].stall()
		key := c.ownedBy(c.nodes[2], 0)
		for range tripAfter {
			c.nodes[0].ask(t.Context(), take(key, 10, 1))
		}
		if _, took := c.nodes[0].ask(t.Context(), take(key, 10, 1)); took != 0 || c.nodes[0].router.Reaches("c") {
			t.Errorf("the breaker is closed after %d timeouts: %v", tripAfter, took)
		}
		resume()
		time.Sleep(2 * probeEvery)
		g, _ := c.nodes[0].ask(t.Context(), take(key, 10, 1))
		// The owner did not know that nobody waited any more: it has counted those too.
		if g.Takes[0].Source != shard.Owner || g.Takes[0].Decision.Remaining != 6 {
			t.Errorf("after the owner is back: %+v", g)
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
		synctest.Wait() // the question is with the owner
		go resume()     // or its server would not stop
		c.kill(c.nodes[2])
		if took := <-answered; took != 0 {
			t.Errorf("a question under way came back after %v", took)
		}
		synctest.Wait()
		if g, took := c.nodes[0].ask(t.Context(), take(key, 10, 1)); took != 0 || g.Takes[0].Source != shard.Unanswered {
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

func TestSilentPeerIsFoundOutWhileNobodyAsks(t *testing.T) {
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
			t.Error("the breaker is still closed")
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
			synctest.Wait() // nobody waits for what is given back
			if look, _ := c.nodes[(i+1)%3].ask(t.Context(), group(0)...); !slices.Equal(remaining(look), tc.remaining) {
				t.Errorf("step %d, looked up: %v, want %v", i, remaining(look), tc.remaining)
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
				want = shard.Unanswered
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
		r := NewRouter(RouterConfig{Self: "a", Promises: NewPromises(true, true), Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
		defer r.Close()
		groups := []shard.Group{{Takes: []shard.Take{take(ring.Key{}, 1, 1)}}}
		r.Decide(t.Context(), groups)
		if !groups[0].Allowed || groups[0].Takes[0].Source != shard.Unanswered {
			t.Errorf("%+v", groups[0])
		}
	})
}

func TestNewViewFinishesWhatIsUnderWay(t *testing.T) {
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
		old.lanes[0].mu.Lock()
		if old.lanes[0].conn != nil {
			t.Error("the link to it is open")
		}
		old.lanes[0].mu.Unlock()
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

// A member that stays is asked over the same links, also after it was restarted, and a
// node asks itself over none.
func TestPeersOutliveViews(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		old := make([]*table, len(c.nodes))
		for i, n := range c.nodes {
			old[i] = n.router.table.Load()
		}
		for range 2 {
			members := slices.Clone(c.view.Members)
			members[2].Incarnation++
			c.setView(members)
		}
		time.Sleep(time.Minute)
		for i, n := range c.nodes {
			n.links.mu.Lock()
			if got, want := len(n.links.links), 2*lanesPerPeer(); got != want {
				t.Errorf("%s: %d links come in, want %d", n.id, got, want)
			}
			n.links.mu.Unlock()
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
		r := NewRouter(RouterConfig{Self: "a", Promises: NewPromises(true, true), Metrics: prometheus.NewRegistry()})
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
			t.Errorf("beside another: %+v", g)
		}
		overflow := c.nodes[0].router.metrics.forwarded.WithLabelValues("c", "overflow")
		if got := testutil.ToFloat64(overflow); got != 3 {
			t.Errorf("%v overflows counted, want 3", got)
		}
		resume()
		<-done
	})
}

// The answer to a ping is nobody's answer, whichever question waits.
func TestPongAnswersNoQuestion(t *testing.T) {
	for _, last := range []uint32{0, math.MaxUint32 - maxPending, math.MaxUint32} {
		l := newLane(nil, DefaultAttemptTimeout)
		l.closed.Store(true)
		l.breaker.closed = true
		l.nextID = last
		a := &ask{done: make(chan struct{}, 1)}
		a.left.Store(1)
		groups := []*shard.Group{{Takes: make([]shard.Take, 1)}, {Takes: make([]shard.Take, 1)}}
		first, err := l.enqueue(a, groups, nil)
		if err != nil {
			t.Fatal(err)
		}
		pong := appendAnswer([]byte{wireVersion}, pingID, &shard.Group{Allowed: true}, false)
		if err := l.deliver(pong); err != nil || l.waiting != 2 {
			t.Errorf("after id %d: %v, %d of 2 questions wait", last, err, l.waiting)
		}
		answers := []byte{wireVersion}
		for i, g := range groups {
			answers = appendAnswer(answers, first+uint32(i), g, false)
		}
		if err := l.deliver(answers); err != nil || l.waiting != 0 || groups[1].Takes[0].Source != shard.Owner {
			t.Errorf("after id %d: %v, %d questions wait", last, err, l.waiting)
		}
	}
}

// Who has no question on a lane gives nobody else's up, and what is given up gets no
// answer any more.
func TestGiveUpTouchesOnlyOnesOwn(t *testing.T) {
	l := newLane(nil, DefaultAttemptTimeout)
	l.closed.Store(true)
	l.breaker.closed = true
	a, other := &ask{done: make(chan struct{}, 1)}, &ask{done: make(chan struct{}, 1)}
	groups := []*shard.Group{{Takes: make([]shard.Take, 1)}}
	first, err := l.enqueue(a, groups, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := l.giveUp(other, first, time.Now()); n != 0 || l.waiting != 1 {
		t.Errorf("gave up %d questions, %d wait", n, l.waiting)
	}
	if n := l.giveUp(a, first, time.Now()); n != 1 || l.waiting != 0 {
		t.Errorf("gave up %d of one's own, %d wait", n, l.waiting)
	}
	late := &shard.Group{Allowed: true, Takes: make([]shard.Take, 1)}
	if err := l.deliver(appendAnswer([]byte{wireVersion}, first, late, false)); err != nil {
		t.Error(err)
	}
	if groups[0].Allowed || a.left.Load() != 0 {
		t.Errorf("the late answer was written: %+v, %d wait", groups[0], a.left.Load())
	}
}

// A member that cannot be dialled keeps nobody from asking the others.
func TestMemberThatCannotBeDialled(t *testing.T) {
	inCluster(t, func(t *testing.T, c *testCluster) {
		c.setView([]Member{{ID: "a", Address: "a:1"}, {ID: "c", Address: "c:1"}, {ID: "d", Address: "%zz"}})
		time.Sleep(time.Minute)
		for i, n := range []*testNode{c.nodes[2], {id: "d"}} {
			g, took := c.nodes[0].ask(t.Context(), take(c.ownedBy(n, 0), 10, 1))
			want := []shard.Source{shard.Owner, shard.Unanswered}[i]
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

// After Close nobody is dialed any more: a view that comes late starts no peers.
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
