package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/client"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/internal/apitest"
	"github.com/weirlimit/weir/internal/inmemory"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

const limit = 1000 // per hour and user

var ruleText = fmt.Sprintf("domain: default\nrules:\n  - {id: per-user, per: [user], limits: [{limit: %d, window: 1h}]}\n"+
	"  - {id: priced, when: {endpoint: /priced}, cost: size, limits: [{limit: 1000000, window: 1h}]}\n", limit)

// network is a cluster in memory: nodes with the real API, which share one table of
// counters, as if none of them were ever on other nodes.
type network struct {
	t     testing.TB
	set   *rules.Set
	shard *shard.Shard

	mu    sync.Mutex
	nodes map[string]*fakeNode // by address; guarded by mu
	view  *cluster.View        // guarded by mu
	views uint64               // how many there were; guarded by mu

	listed   atomic.Int64   // how often a node was asked for all nodes
	listTime atomic.Int64   // nanoseconds that a node takes to list them
	joining  atomic.Bool    // whether no member is known to serve yet, of those that have keys
	keys     []cluster.Node // in etcd, with the members; guarded by mu
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	n := &network{t: t, nodes: make(map[string]*fakeNode)}
	var err error
	if n.set, err = rules.Parse("rules.yaml", []byte(ruleText)); err != nil {
		t.Fatal(err)
	}
	if n.shard, err = shard.New(shard.Config{Partitions: 1021, MaxBytes: 64 << 20, Metrics: prometheus.NewRegistry()}); err != nil {
		t.Fatal(err)
	}
	return n
}

// fakeNode is one node of a network.
type fakeNode struct {
	*network
	apitest.Status
	id, address string
	listener    *inmemory.Listener
	server      *grpc.Server
	limiter     *api.Limiter
	served      chan error

	asked   atomic.Int64 // checks
	batches atomic.Int64 // messages and calls with checks
	holds   atomic.Pointer[chan struct{}]
	lags    atomic.Pointer[cluster.View] // what it has for the view, unless nil
	largest atomic.Int64                 // checks of one message
}

// start starts a node, id at id+":1", which is killed when the test ends.
func (n *network) start(id string) *fakeNode {
	n.t.Helper()
	return n.startAt(id, id+":1")
}

func (n *network) startAt(id, address string) *fakeNode {
	n.t.Helper()
	return n.startOf(homeCluster, id, address)
}

// Fingerprints.
const (
	homeCluster    = "00000000000000aa"
	foreignCluster = "00000000000000ff"
)

// startOf starts a node that says that it is of a cluster.
func (n *network) startOf(fingerprint, id, address string) *fakeNode {
	n.t.Helper()
	f := &fakeNode{network: n, id: id, address: address, listener: inmemory.NewListener(), served: make(chan error, 1)}
	f.Status = apitest.Status{Node: cluster.Node{ID: id, Address: address}, ClusterID: fingerprint, IsReady: true, Set: n.set}
	f.limiter = api.NewLimiter(api.Config{
		Rules: func() *rules.Set { return n.set }, Hasher: ring.NewHasher([ring.SecretSize]byte{1}), Decider: f,
		Metrics: prometheus.NewRegistry(), View: f.viewNumber,
	})
	f.server = grpc.NewServer(append(api.ServerOptions(),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}))...)
	api.Register(f.server, f.limiter, api.NewConfigServer(apitest.FixedRules{Set: n.set}), f, nil)
	go func() { f.served <- f.server.Serve(f.listener) }()
	n.mu.Lock()
	n.nodes[address] = f
	n.mu.Unlock()
	n.t.Cleanup(f.kill)
	return f
}

// kill ends the node as a crash would. It may be called again.
func (f *fakeNode) kill() {
	f.mu.Lock()
	if f.nodes[f.address] == f {
		delete(f.nodes, f.address)
	}
	f.mu.Unlock()
	f.release()
	f.server.Stop()
}

// stop ends the node as an operator would.
func (f *fakeNode) stop() {
	f.mu.Lock()
	delete(f.nodes, f.address)
	f.mu.Unlock()
	f.limiter.Stop()
	f.server.GracefulStop()
}

// hold makes the node answer no checks until release.
func (f *fakeNode) hold() {
	held := make(chan struct{})
	f.holds.Store(&held)
}

func (f *fakeNode) release() {
	if held := f.holds.Swap(nil); held != nil {
		close(*held)
	}
}

// members makes these the members that all nodes know.
func (n *network) members(nodes ...*fakeNode) {
	n.t.Helper()
	var ids []string
	for _, f := range nodes {
		ids = append(ids, f.id)
	}
	r, err := ring.Build(ring.DefaultParams, ids)
	if err != nil {
		n.t.Fatal(err)
	}
	v := &cluster.View{Ring: r}
	for _, f := range nodes {
		v.Members = append(v.Members, cluster.Member{ID: f.id, Address: f.address, Incarnation: 1})
	}
	slices.SortFunc(v.Members, func(a, b cluster.Member) int { return int(a.ID[0]) - int(b.ID[0]) })
	n.mu.Lock()
	defer n.mu.Unlock()
	n.views++
	v.Number = n.views
	n.view = v
}

// membersGone makes the members ones that are gone, so that no list of nodes is of use.
func (n *network) membersGone() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.view.Members {
		n.view.Members[i].Gone = true
	}
}

// dial is a client.Dialer.
func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	f := n.nodes[address]
	n.mu.Unlock()
	if f == nil {
		return nil, errors.New("connection refused")
	}
	return f.listener.DialContext(ctx)
}

// client returns a client that is connected already, if there is a node.
func (n *network) client(seed string, opts ...client.Option) *client.Client {
	n.t.Helper()
	c, err := client.New(seed, append([]client.Option{client.WithDialer(n.dial)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			n.t.Error(err)
		}
	})
	time.Sleep(time.Second) // in a bubble
	synctest.Wait()
	return c
}

// used is how much of the limit of a user is counted.
func (n *network) used(c *client.Client, user string) uint32 {
	n.t.Helper()
	resp, err := c.Node().Status(n.t.Context(), &weirv1.RateLimitStatusRequest{IdentifierType: "user", Identifier: user})
	if err != nil || len(resp.GetLimits()) == 0 {
		n.t.Fatalf("%v, %v", resp, err)
	}
	return limit - resp.GetLimits()[0].GetRemainingTokens()
}

// Decide implements api.Decider.
func (f *fakeNode) Decide(ctx context.Context, groups []shard.Group) {
	if held := f.holds.Load(); held != nil {
		<-*held // callers that give up
	}
	f.batches.Add(1)
	f.asked.Add(int64(len(groups)))
	for n := int64(len(groups)); ; {
		largest := f.largest.Load()
		if largest >= n || f.largest.CompareAndSwap(largest, n) {
			break
		}
	}
	apitest.Node{Shard: f.shard}.Decide(ctx, groups)
}

// Owner implements api.Decider.
func (f *fakeNode) Owner(ring.Key) string { return f.id }

func (f *fakeNode) Standby(ring.Key) string { return "" }

// HasTime implements api.Decider.
func (f *fakeNode) HasTime([]shard.Take, int) bool { return true }

// View and the following are what all nodes of the network know. The rest of api.Status is that of apitest.Status.
func (f *fakeNode) View() *cluster.View {
	if v := f.lags.Load(); v != nil {
		return v
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.view
}

func (f *fakeNode) viewNumber() uint64 {
	if v := f.View(); v != nil {
		return v.Number
	}
	return 0
}

func (f *fakeNode) Nodes() []cluster.Node {
	f.listed.Add(1)
	time.Sleep(time.Duration(f.listTime.Load()))
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keys
}

func (f *fakeNode) Reaches(string) bool { return true }

// HandoverStatus is that of a node that is ready, or joins.
func (f *fakeNode) HandoverStatus(string) cluster.HandoverStatus {
	if f.joining.Load() {
		return cluster.HandoverStatus{State: cluster.Joining}
	}
	return cluster.HandoverStatus{State: cluster.Ready}
}

func (f *fakeNode) Counters() int { return f.shard.Len() }
