package cluster

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// This is the harness of tests of routing: how a router asks its peers and what it makes of their answers.
// inCluster runs a test in a bubble with a testCluster: three nodes, each a router, a shard and a gRPC server
// over connections in memory, and views that the test sets.
//
//   - ask asks a node; ownedBy returns a key that a node owns.
//   - stall, kill, cut and lose break nodes and connections; setView changes the members.
//
// Tests of ownership, handover and copies use ownershipCluster in harness_ownership_test.go.

// testNode is a router and a shard with real gRPC over an in-memory connection.
type testNode struct {
	busy atomic.Bool // the node has too much to do

	id           string
	shard        *shard.Shard
	local        Local // what decides, mostly the shard
	router       *Router
	server       *grpc.Server
	conns        *Server
	greeter      *Greeter
	denialLeases *GivenDenialLeases
	kept         atomic.Int64  // takes that peers have confirmed
	takes        atomic.Int64  // of the peers' groups that were not only looked at
	frames       atomic.Int64  // of requests that the node has been asked to decide
	pause        chan struct{} // closed to let peers' requests through; nil for always
	mu           sync.Mutex    // guards pause

	registry *prometheus.Registry // of the shard

	perTake atomic.Int64 // nanoseconds that a take of a peer needs
}

// Decide implements Local for the peers' requests.
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

func (n *testNode) Keep(takes []shard.Take) {
	n.kept.Add(int64(len(takes)))
	n.local.Keep(takes)
}

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

// newTestGreeter returns the greeter of a node of the cluster of all tests.
func newTestGreeter(id string, incarnation uint64) *Greeter {
	return NewGreeter(Identity{Cluster: 1, ID: id, Incarnation: incarnation}, noClock, slog.New(slog.DiscardHandler))
}

// testCluster is some nodes, and which of them can dial which.
type testCluster struct {
	t            *testing.T
	nodes        []*testNode
	mu           sync.Mutex
	listeners    map[string]*inmemory.Listener // by address; guarded by mu
	locator      map[[2]string]string          // the owner, by node and partition; guarded by mu
	conns        map[[2]string][]net.Conn      // by dialing node and address; guarded by mu
	cuts         map[[2]string]bool            // the pairs of node and address that cannot connect; guarded by mu
	lossy        map[[2]string]bool            // between whom and which address all is lost; guarded by mu
	reaching     map[string][]string           // by node, who reaches all owners, as far as it knows; guarded by mu
	view         *View
	certificates atomic.Int64 // how often they were replaced
	noCopies     bool         // whether no copy is one to decide from
	telling      bool         // whether all tell whom they reach
	standbys     bool         // whether views have any; without, the policies show

	grantsAreAdded bool // whether owners have what standbys have granted

	sent   func(frame []byte) // is told of each frame of requests; nil if nothing is to be
	tracer trace.Tracer       // of all nodes; nil if nothing is traced
}

// noClock is the clock of a node that says no time.
func noClock() int64 { return 0 }

// newLoneRouter returns a router that has no view.
func newLoneRouter() *Router {
	return NewRouter(RouterConfig{Self: "b", Locator: noLocator{}, DenialLeases: NewGivenDenialLeases(true, true), Metrics: prometheus.NewRegistry()})
}

// noLocator knows of no node.
type noLocator struct{ testLocator }

func (noLocator) OwnerOf(uint32) (id string, ok bool) { return "", false }

func (noLocator) Reaching(string) []string { return nil }

func (noLocator) IsGrantable(uint32) bool { return true }

func (noLocator) ReturnGranted(shard.Take) string { return "" }

// testLocator are the Locator of the node self.
type testLocator struct {
	*testCluster
	self string
}

func (h testLocator) OwnerOf(p uint32) (id string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id, ok = h.locator[[2]string{h.self, fmt.Sprint(p)}]
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
func (h testLocator) Reaching(id string) (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.nodes {
		if h.telling && n.id != id && n.id != h.self && !h.cuts[[2]string{n.id, id + ":1"}] {
			ids = append(ids, n.id)
		}
	}
	return append(ids, h.reaching[h.self]...)
}

func (testLocator) Returning() <-chan struct{} { return nil }

func (testLocator) WasStopped() bool { return false }

func (h testLocator) IsGrantable(uint32) bool { return !h.noCopies }

func (h testLocator) DecidesProvisionally(uint32) bool { return false }

func (h testLocator) StandIn(uint32) string { return "" }

func (h testLocator) ReturnGranted(take shard.Take) string {
	if !h.grantsAreAdded {
		return ""
	}
	id, _ := h.OwnerOf(h.partition(take.Key))
	return id
}

// believe makes n believe that the counter of k is with the node owner.
func (c *testCluster) believe(n *testNode, k ring.Key, owner *testNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.locator[[2]string{n.id, fmt.Sprint(c.partition(k))}] = owner.id
}

func (c *testCluster) partition(k ring.Key) uint32 { return k.Partition(c.view.Ring.Partitions()) }

func newTestCluster(t *testing.T, size int) *testCluster {
	var denialLeases []*GivenDenialLeases
	for range size {
		denialLeases = append(denialLeases, NewGivenDenialLeases(true, true))
	}
	return newTestClusterOf(t, denialLeases...)
}

// newTestClusterOf returns a cluster of as many nodes as there are denialLeases.
func newTestClusterOf(t *testing.T, denialLeases ...*GivenDenialLeases) *testCluster {
	c := newEmptyCluster(t)
	c.start(nil, denialLeases...)
	return c
}

func newEmptyCluster(t *testing.T) *testCluster {
	return &testCluster{
		t: t, listeners: make(map[string]*inmemory.Listener),
		locator: make(map[[2]string]string), conns: make(map[[2]string][]net.Conn), cuts: make(map[[2]string]bool),
		lossy: make(map[[2]string]bool), reaching: make(map[string][]string),
	}
}

// start adds as many nodes as there are denialLeases, and has locals decide, if there are
// any, instead of shards.
func (c *testCluster) start(locals []Local, denialLeases ...*GivenDenialLeases) {
	var members []Member
	for i := range denialLeases {
		id := string(rune('a' + i))
		var local Local
		if locals != nil {
			local = locals[i]
		}
		n := c.newNode(id, 1, local, denialLeases[i])
		c.nodes = append(c.nodes, n)
		c.serve(n)
		members = append(members, Member{ID: id, Address: id + ":1", Incarnation: 1})
	}
	c.setView(members)
	synctest.Wait()
}

// newNode returns a node that is not served yet. Its shard decides, unless local is another one.
func (c *testCluster) newNode(id string, incarnation uint64, local Local, denialLeases *GivenDenialLeases) *testNode {
	c.t.Helper()
	registry := prometheus.NewRegistry()
	s, err := shard.New(shard.Config{Partitions: uint32(ring.DefaultParams.Partitions), MaxBytes: 64 << 20, Metrics: registry})
	if err != nil {
		c.t.Fatal(err)
	}
	n := &testNode{id: id, shard: s, local: local, denialLeases: denialLeases, registry: registry}
	if local == nil {
		n.local = s
	}
	n.greeter = newTestGreeter(id, incarnation)
	dial := GreetingDialer(func(ctx context.Context, address string) (net.Conn, error) { return c.dial(ctx, id, address) }, n.greeter)
	n.router = NewRouter(RouterConfig{Self: id, Local: n.local, Locator: testLocator{c, id}, DenialLeases: n.denialLeases, Tracer: c.tracer, Dial: dial, Busy: n.busy.Load, AttemptTimeout: DefaultAttemptTimeout, Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry()})
	return n
}

// routingOf returns a view that follows another one, which may be nil, in which the partitions are where the ring wants them.
func routingOf(t testing.TB, before *View, members []Member) *View {
	t.Helper()
	v := &View{Number: 1, Members: members}
	if before != nil {
		v.Number = before.Number + 1
	}
	var names []string
	var index []uint16 // of those names, in members
	for i, m := range members {
		if !m.Leaving {
			names, index = append(names, m.ID), append(index, uint16(i))
		}
	}
	r, err := ring.Build(ring.DefaultParams, names)
	if err == nil {
		v.Ring, err = r.Renumber(index, len(members))
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (c *testCluster) setView(members []Member) {
	v := routingOf(c.t, c.view, members)
	if owner, _ := v.Ring.Tables(); !c.standbys {
		var err error
		if v.Ring, err = ring.FromTables(owner, owner, len(v.Members)); err != nil {
			c.t.Fatal(err)
		}
	}
	c.view = v
	for _, n := range c.nodes {
		n.router.SetView(v)
		for p := range v.Ring.Partitions() { // handed over at once, and empty
			if v.Members[v.Ring.Owner(p)].ID == n.id {
				n.shard.Unseal(p)
			} else {
				n.shard.Seal(p)
			}
		}
	}
}

func (c *testCluster) serve(n *testNode) {
	l := inmemory.NewListener()
	n.conns = NewServer(n, n.router, n.greeter)
	n.server = grpc.NewServer(grpc.Creds(n.conns.Credentials(insecure.NewCredentials())))
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
	n.conns.Close()
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
	c.conns[way] = append(c.conns[way], conn)
	c.mu.Unlock()
	if c.sent != nil {
		conn = watchedConn{conn, c.sent}
	}
	lossy := lossyConn{conn, func() bool { return c.isLossy(way) }, new(atomic.Bool)}
	return agingConn{lossy, &c.certificates, c.certificates.Load()}, nil
}

// watchedConn tells of each frame that is sent on it.
type watchedConn struct {
	net.Conn
	sent func(frame []byte)
}

func (c watchedConn) Write(b []byte) (int, error) {
	if !bytes.HasPrefix(b, []byte(connPreface)) {
		c.sent(b[lengthSize:])
	}
	return c.Conn.Write(b)
}

// agingConn is a connection that is outdated when there are other certificates than when it was made.
type agingConn struct {
	net.Conn
	now  *atomic.Int64
	made int64
}

func (c agingConn) IsOutdated() bool { return c.now.Load() != c.made }

func (c *testCluster) isLossy(way [2]string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lossy[way]
}

// lose loses all that is sent from one node to another, on the connections that it has opened, and all
// answers.
func (c *testCluster) lose(from, to *testNode) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lossy[[2]string{from.id, to.id + ":1"}] = true
}

// cut ends the connections from one node to another, and lets it open no more.
func (c *testCluster) cut(from, to *testNode) {
	way := [2]string{from.id, to.id + ":1"}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[way] = true
	for _, conn := range c.conns[way] {
		_ = conn.Close()
	}
}

func (c *testCluster) close() {
	for _, n := range c.nodes {
		n.router.Close()
	}
	for _, n := range c.nodes {
		n.server.Stop()
		n.conns.Close()
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
		c := newTestClusterOf(t, NewGivenDenialLeases(false, false), NewGivenDenialLeases(false, false), NewGivenDenialLeases(false, false))
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

// keyWith returns the i-th key of that owner and that standby.
func (c *testCluster) keyWith(owner, standby, i int) ring.Key {
	for j := 0; ; j++ {
		k := c.ownedBy(c.nodes[owner], j)
		if c.view.Ring.Standby(c.partition(k)) != standby {
			continue
		}
		if i == 0 {
			return k
		}
		i--
	}
}
