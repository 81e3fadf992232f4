package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// This is the harness of tests in which partitions change hands. inOwners runs a test in a bubble with an
// ownershipCluster: nodes that are whole except for the API, with a registry in memory.
//
//   - start, launch, leave, end, crash and halt change the nodes; settled waits for the views to follow.
//   - check, checkAt, take and exact ask for tokens, and count what was allowed.
//   - begin starts a load of callers that ask until end; lossyConn loses what nodes send.
//
// Tests of one router and its peers use testCluster in harness_router_test.go.

// ownershipCluster is a cluster of whole nodes without the API, in a bubble: real gRPC and connections
// over connections in memory, and a registry that tells at once.
type ownershipCluster struct {
	*testCluster
	registry *fakeRegistry
	log      syncBuffer
	starts   map[string]uint64 // by id
	alive    map[string]*ownershipNode
	wg       sync.WaitGroup
	losing   atomic.Bool                 // whether nothing arrives that Owners sends
	ahead    map[string]time.Duration    // how far clocks of nodes are ahead as they start, by id
	disks    map[string][]savedPartition // what was saved of nodes and is restored when they start, by id
	expected map[string][]Life           // the members at that time, by id
	hears    time.Duration               // how long after a halt a node hears what the others answered to its checks
	other    uint64                      // 0 for the cluster of most tests; else another one in the same network
}

type ownershipNode struct {
	testNode
	owners     *Owners
	membership *Membership
	node       Node
	stop       context.CancelFunc
	started    time.Time
	leased     bool          // whether its lease is being renewed; guarded by mu
	halted     chan struct{} // closed when it goes on, nil if it runs; guarded by mu
}

// halt stops a node as a signal does: it receives nothing, and does not look at the clock.
func (n *ownershipNode) halt() (goOn func()) {
	halted := make(chan struct{})
	n.mu.Lock()
	n.halted = halted
	n.mu.Unlock()
	return func() {
		n.mu.Lock()
		n.halted = nil
		n.mu.Unlock()
		close(halted)
	}
}

// runs returns when the node runs, or never is closed, and reports whether it was halted.
func (n *ownershipNode) runs(never <-chan struct{}) (wasHalted bool) {
	for {
		n.mu.Lock()
		halted := n.halted
		n.mu.Unlock()
		if halted == nil {
			return wasHalted
		}
		wasHalted = true
		select {
		case <-halted:
		case <-never:
			return wasHalted
		}
	}
}

// haltingConn is a connection of a node that may be halted.
type haltingConn struct {
	net.Conn
	node   *ownershipNode
	hears  time.Duration // how much later than the node goes on
	closed context.Context
	end    context.CancelFunc
}

func (n *ownershipNode) halting(conn net.Conn, hears time.Duration) *haltingConn {
	closed, end := context.WithCancel(context.Background())
	return &haltingConn{conn, n, hears, closed, end}
}

func (c *haltingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.node.runs(c.closed.Done()) {
		time.Sleep(c.hears)
	}
	return n, err
}

func (c *haltingConn) Close() error {
	c.end()
	return c.Conn.Close()
}

// haltingListener is what a node listens on that may be halted.
type haltingListener struct {
	net.Listener
	node *ownershipNode
}

func (l haltingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.node.halting(conn, 0), nil
}

// dials returns what the node dials by. After a halt it hears what comes on these connections so much later.
func (n *ownershipNode) dials(dial func(ctx context.Context, from, address string) (net.Conn, error), hears time.Duration) func(ctx context.Context, address string) (net.Conn, error) {
	return func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := dial(ctx, n.id, address)
		if err != nil {
			return nil, err
		}
		return n.halting(conn, hears), nil
	}
}

var ownershipRing = ring.Params{Partitions: 64, ReplicationFactor: 20, Load: 1.25}

// inOwners runs a test in a bubble with a cluster of no nodes yet.
func inOwners(t *testing.T, f func(t *testing.T, c *ownershipCluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := &ownershipCluster{
			testCluster: newEmptyCluster(t),
			registry:    &fakeRegistry{nodes: make(map[string]Node)},
			starts:      make(map[string]uint64),
			alive:       make(map[string]*ownershipNode),
			ahead:       make(map[string]time.Duration),
			disks:       make(map[string][]savedPartition),
			expected:    make(map[string][]Life),
		}
		f(t, c)
		for id := range c.alive {
			c.crash(id)
		}
		c.wg.Wait()
		if t.Failed() {
			t.Log(c.log.String())
		}
	})
}

// start starts nodes, and announces them as ready.
func (c *ownershipCluster) start(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.starts[id]++
		n := c.launch(id, c.starts[id])
		c.follow(n)
		c.registry.Announce(n.node)
	}
}

// follow tells a node what the registry holds.
func (c *ownershipCluster) follow(n *ownershipNode) {
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	c.registry.watchers = append(c.registry.watchers, n.membership.Update)
}

// launch starts a node of which the registry does not know.
func (c *ownershipCluster) launch(id string, incarnation uint64) *ownershipNode {
	c.t.Helper()
	wall := func() time.Time { return time.Now().Add(c.ahead[id]) }
	s, err := shard.New(shard.Config{Partitions: uint32(ownershipRing.Partitions), MaxBytes: 16 << 20, Wall: wall, Metrics: prometheus.NewRegistry()})
	if err != nil {
		c.t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&c.log, nil)).With("node", id)
	n := &ownershipNode{testNode: testNode{id: id, shard: s, local: s, denialLeases: NewGivenDenialLeases(true, true)}, leased: true}
	n.node = Node{ID: id, Address: id + ":1", Incarnation: incarnation, State: Ready}
	n.greeter = NewGreeter(Identity{Cluster: 1 + c.other, ID: id, Incarnation: incarnation}, s.Now, log)
	n.router = NewRouter(RouterConfig{
		Self: id, Local: s, DenialLeases: n.denialLeases, Dial: GreetingDialer(n.dials(c.dial, c.hears), n.greeter), AttemptTimeout: DefaultAttemptTimeout,
		Logger: log, Metrics: prometheus.NewRegistry(),
	})
	n.started = time.Now()
	c.decide(n, log)
	for _, s := range c.disks[id] {
		if err := n.owners.SnapshotCopies().Restore(s.partition, s.snapshot, s.records, s.grants); err != nil {
			c.t.Fatal(err)
		}
	}
	n.owners.SnapshotCopies().Expect(c.expected[id])
	n.node.Restored = n.owners.SnapshotCopies().Restored()
	n.conns = NewServer(&n.testNode, n.router, n.greeter)
	n.server = grpc.NewServer(grpc.Creds(n.conns.Credentials(insecure.NewCredentials())))
	n.owners.Register(n.server)
	l := inmemory.NewListener()
	c.mu.Lock()
	c.listeners[n.node.Address] = l
	c.mu.Unlock()
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	c.wg.Go(func() { _ = n.server.Serve(haltingListener{l, n}) })
	c.wg.Go(func() { n.owners.Run(ctx) })
	c.wg.Go(func() { n.membership.Run(ctx) })
	c.alive[id] = n
	return n
}

// decide gives a node what decides in its partitions, and writes views.
func (c *ownershipCluster) decide(n *ownershipNode, log *slog.Logger) {
	renewed := func() (at time.Time) {
		n.runs(nil)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.leased {
			at = time.Now()
		}
		return at
	}
	n.owners = NewOwners(OwnersConfig{
		Self:    Member{ID: n.id, Address: n.node.Address, Incarnation: n.node.Incarnation},
		Counted: c.starts[n.id], Greeter: n.greeter, Shard: n.shard, Router: n.router,
		Keep: func(*view.View) {}, Renewed: renewed, ReadView: c.registry.ReadView,
		Granted: func() time.Time {
			if renewed().IsZero() {
				return time.Time{}
			}
			return n.started
		},
		State: func() State { return Ready }, Load: func() Load { return Load{} }, Events: func(context.Context) []Event { return nil },
		Decisions: func(time.Time) (io.ReadCloser, error) {
			return nil, status.Error(codes.FailedPrecondition, "keeps no decision log")
		},
		Dial: n.dials(c.dialRaw, 0), Logger: log, Metrics: prometheus.NewRegistry(),
	}, ownershipRing)
	n.membership = NewMembership(n.id, ownershipRing, c.registry, n.router, n.owners, log)
}

// crash ends a node without a word.
func (c *ownershipCluster) crash(id string) {
	n := c.alive[id]
	delete(c.alive, id)
	c.mu.Lock()
	c.listeners[n.node.Address].Close()
	delete(c.listeners, n.node.Address)
	c.mu.Unlock()
	n.stop()
	n.conns.Close()
	n.server.Stop()
	n.router.Close()
}

// leave has a node hand over what it holds, and then end.
func (c *ownershipCluster) leave(id string) {
	c.t.Helper()
	n := c.alive[id]
	c.announce(n, Leaving)
	c.await("all was handed over by "+id, n.handedOver)
	c.end(id)
}

func (c *ownershipCluster) announce(n *ownershipNode, s State) {
	n.node.State = s
	c.registry.Announce(n.node)
}

func (n *ownershipNode) handedOver() bool {
	s := n.owners.HandoverStatus()
	return s.Active+s.Leaving == 0
}

// end ends a node that has handed over all.
func (c *ownershipCluster) end(id string) {
	c.announce(c.alive[id], Left)
	synctest.Wait()
	c.crash(id)
	c.registry.expire(id)
}

func (c *ownershipCluster) dialRaw(ctx context.Context, from, address string) (net.Conn, error) {
	way := [2]string{from, address}
	c.mu.Lock()
	l, cut := c.listeners[address], c.cuts[way]
	c.mu.Unlock()
	if l == nil || cut {
		return nil, fmt.Errorf("%s: %w", address, syscall.ECONNREFUSED)
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[way] = append(c.conns[way], conn)
	return lossyConn{conn, func() bool { return c.losing.Load() || c.isLossy(way) }, new(atomic.Bool)}, nil
}

// lossyConn loses all from when lossy says so for the first time, as TCP may for long: it waits
// ever longer before it sends something again.
type lossyConn struct {
	net.Conn
	lossy func() bool
	stuck *atomic.Bool
}

func (c lossyConn) loses() bool {
	if c.lossy() {
		c.stuck.Store(true)
	}
	return c.stuck.Load()
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.loses() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c lossyConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.loses() {
			return n, err
		}
	}
}

// replicated waits until the standbys have what was counted, also those that were restarted.
func (c *ownershipCluster) replicated() { time.Sleep(heartbeatEvery + 2*feedEvery) }

// feedEvery is within which a standby is sent what has changed.
const (
	feedEvery  = 100 * time.Millisecond
	hurryEvery = 2 * time.Millisecond // at most, for what a counter has asked to be sent at once
)

// await waits for at most 10 s.
func (c *ownershipCluster) await(what string, condition func() bool) {
	c.t.Helper()
	for began := time.Now(); !condition(); {
		if time.Since(began) > 10*time.Second {
			c.t.Errorf("10 s later it is not so that %s", what)
			c.t.Log(c.log.String())
			c.t.FailNow()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// settled waits until isSettled.
func (c *ownershipCluster) settled() {
	c.t.Helper()
	c.await("every partition is held once, by its owner", c.isSettled)
}

// isSettled reports whether every partition is held once, by its owner, and all nodes have one
// view.
func (c *ownershipCluster) isSettled() bool {
	synctest.Wait()
	if !c.isWherePlanned() {
		return false
	}
	locator := make([]int, ownershipRing.Partitions)
	first := c.any().router.View()
	for _, n := range c.alive {
		v, s := n.router.View(), n.owners.HandoverStatus()
		if v == nil || v.Number != first.Number || len(v.Present()) != len(c.alive) || s.Wanted+s.Leaving > 0 {
			return false
		}
		for p := range locator {
			if !n.shard.IsSealed(uint32(p)) {
				locator[p]++
			}
		}
	}
	return !slices.ContainsFunc(locator, func(n int) bool { return n != 1 })
}

// isWherePlanned reports whether each partition is where the plan wants it, with its standby.
func (c *ownershipCluster) isWherePlanned() bool {
	v, _ := c.registry.ReadView(context.Background())
	if v == nil {
		return false
	}
	plan, err := view.PlanOf(ownershipRing, v)
	return err == nil && isWherePlanned(v, plan)
}

// any returns some node that reaches all others, as those do that call themselves ready.
func (c *ownershipCluster) any() (some *ownershipNode) {
	for _, some = range c.alive {
		if _, reachable := some.router.Members(); len(reachable) > 0 && !slices.Contains(reachable, false) {
			break
		}
	}
	return some
}

var ownershipLimit = algorithms.Limit{Algorithm: algorithms.SlidingWindow, Limit: 10, Window: int64(time.Hour)}

func ownershipKey(i int) ring.Key {
	r := rand.New(rand.NewPCG(uint64(i), 1))
	return ring.Key{Hi: r.Uint64(), Lo: r.Uint64()}
}

// check asks some node, and returns whether it is allowed and the source of the decision.
func (c *ownershipCluster) check(key ring.Key) (bool, shard.Source) { return c.checkAt(c.any(), key) }

func (c *ownershipCluster) checkAt(n *ownershipNode, key ring.Key) (bool, shard.Source) {
	g := []shard.Group{{Takes: []shard.Take{{Key: key, Limit: ownershipLimit, Cost: 1, OnFailure: shard.FailOpen}}}}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	n.router.Decide(ctx, g)
	return g[0].Allowed, g[0].Takes[0].Source
}

// take takes n of each key, which must all be decided, and returns how many were allowed by key.
func (c *ownershipCluster) take(allowed map[ring.Key]int, keys, n int) {
	c.t.Helper()
	for i := range keys {
		for range n {
			ok, source := c.check(ownershipKey(i))
			if ok {
				allowed[ownershipKey(i)]++
			}
			if source == shard.Undecided {
				c.t.Errorf("no node decided about key %d", i)
			}
		}
	}
}

// exact complains about keys of which not want was allowed.
func (c *ownershipCluster) exact(allowed map[ring.Key]int, keys, want int) {
	c.t.Helper()
	for i := range keys {
		if got := allowed[ownershipKey(i)]; got != want {
			c.t.Errorf("key %d: %d were allowed, not %d", i, got, want)
		}
	}
}

// steadyCallers are callers that ask all the time, some node each time.
type steadyCallers struct {
	nodes     atomic.Pointer[[]*ownershipNode] // that are asked
	stop      chan struct{}
	callers   sync.WaitGroup
	mu        sync.Mutex
	allowed   map[ring.Key]int // guarded by mu
	asked     int              // guarded by mu
	undecided int              // guarded by mu
}

// begin starts callers, each of which asks for the keys in turn, every 1 to 20 ms.
func (c *ownershipCluster) begin(keys, callers int) *steadyCallers {
	l := &steadyCallers{stop: make(chan struct{}), allowed: make(map[ring.Key]int)}
	c.ask(l)
	for i := range callers {
		l.callers.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			for {
				select {
				case <-l.stop:
					return
				case <-time.After(time.Duration(1+r.IntN(20)) * time.Millisecond):
				}
				key, nodes := ownershipKey(r.IntN(keys)), *l.nodes.Load()
				ok, source := c.checkAt(nodes[r.IntN(len(nodes))], key)
				l.mu.Lock()
				l.asked++
				l.allowed[key] += int(boolByte(ok))
				l.undecided += int(boolByte(source == shard.Undecided))
				l.mu.Unlock()
			}
		})
	}
	return l
}

// ask has all nodes asked that reach all others, but one.
func (c *ownershipCluster) ask(l *steadyCallers, but ...string) {
	var nodes []*ownershipNode
	for id, n := range c.alive {
		if _, reachable := n.router.Members(); !slices.Contains(reachable, false) && !slices.Contains(but, id) {
			nodes = append(nodes, n)
		}
	}
	l.nodes.Store(&nodes)
}

func (l *steadyCallers) end() {
	close(l.stop)
	l.callers.Wait()
}

// pass lets time pass in a bubble.
func pass(d time.Duration) { time.Sleep(d) }
