package sim

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/node"
	"github.com/weirlimit/weir/test/sim/memetcd"
	"github.com/weirlimit/weir/test/sim/network"
)

const (
	etcdHost    = "etcd"
	etcdAddress = etcdHost + ":2379"
	clusterName = "sim"
	foreignName = "foreign" // of another cluster, with the same etcd
	checkerHost = "checker"

	partitions    = 251                    // of the ring: enough for all keys and some 30 nodes, and a quarter of the work of the default
	tryAgainAfter = 500 * time.Millisecond // a node that could not start
	counterMemory = 8 << 20
	snapshotEvery = 3 * time.Second // so that nodes that are killed come back with old counters
)

// World is a cluster in memory, with its etcd. It is made and used in one bubble, by
// several goroutines.
type World struct {
	*RunLog
	network *network.Network
	etcd    *memetcd.Server
	there   *network.Host // of etcd
	checker *network.Host
	dir     string         // of what nodes keep on disk, by id: a node that starts again finds it
	size    int            // partitions of the ring
	running sync.WaitGroup // all nodes that were ever started

	partitions map[Key]uint32 // of the keys
	record     *record
	mu         sync.Mutex
	traces     map[Key][]entry             // of who had their partitions; guarded by mu
	nodes      map[string]*Node            // that run, by id; guarded by mu
	hosts      map[string]string           // of nodes that do not run on the host of their own name, by id; guarded by mu
	hidden     map[string]bool             // ids of nodes that no other reaches; guarded by mu
	ways       map[[2]string]way           // from one host to another; guarded by mu
	failures   []string                    // guarded by mu
	clocks     map[string]time.Duration    // how far nodes' clocks are ahead, by id; guarded by mu
	waived     func(at time.Duration) bool // whether two nodes may decide in one partition
	unfit      bool                        // a node has become a member that must not; guarded by mu
	built      []built                     // nodes that run, or have been told to stop or killed and not ended; guarded by mu
}

// built is a node as it runs, and what says which partitions it holds.
type built struct {
	node      *Node
	ownership node.Deciders
}

// Node is a node that runs.
type Node struct {
	ID      string
	cluster string
	host    *network.Host
	stop    context.CancelFunc
	done    chan struct{} // closed when it has ended

	dead atomic.Bool // killed: what it says does not count
}

// NewWorld returns a world with an etcd, and without nodes.
func NewWorld() (*World, error) {
	w := &World{
		RunLog: &RunLog{start: time.Now()}, network: network.New(), etcd: memetcd.New(), size: partitions,
		nodes: make(map[string]*Node), ways: make(map[[2]string]way),
		partitions: make(map[Key]uint32), record: newRecord(), traces: make(map[Key][]entry),
		clocks: make(map[string]time.Duration), hosts: make(map[string]string), hidden: make(map[string]bool), waived: func(time.Duration) bool { return false },
	}
	var err error
	if w.there, err = w.network.Host(etcdHost); err != nil {
		return nil, err
	}
	if w.checker, err = w.network.Host(checkerHost); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "weir-sim-"); err != nil {
		return nil, err
	}
	return w, w.startEtcd()
}

func (w *World) startEtcd() error {
	l, err := w.there.Listen(context.Background(), etcdAddress)
	if err == nil {
		w.etcd.Start(l)
	}
	return err
}

// addressOn is where a node listens that runs on a host.
func addressOn(host string) string { return host + ":9090" }

// hostOf returns the name of the host on which a node runs. Other hosts than those of nodes have their own names.
func (w *World) hostOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.hosts[id], id)
}

// Start starts a node. If that fails, it tries again, as a supervisor would.
func (w *World) Start(id string) error {
	n, err := w.prepare(id, w.hostOf(id), clusterName)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	w.runNode(n)
	return nil
}

// StartOn starts a node, from then on, on the host of another one that does not run any more.
func (w *World) StartOn(id, other string) error {
	host := w.hostOf(other)
	w.mu.Lock()
	w.hosts[id] = host
	w.mu.Unlock()
	return w.Start(id)
}

// prepare returns a node that is about to run on a host.
func (w *World) prepare(id, host, cluster string) (n *Node, err error) {
	n = &Node{ID: id, cluster: cluster, done: make(chan struct{})}
	n.host, err = w.network.Host(host)
	return n, err
}

// runNode runs a node until it is stopped.
func (w *World) runNode(n *Node) {
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	w.running.Go(func() {
		defer close(n.done)
		w.run(ctx, n)
	})
}

func (w *World) run(ctx context.Context, n *Node) {
	opts := w.options(n)
	for again := false; ctx.Err() == nil; again = true {
		if again {
			w.add(n.ID, "is started again")
		}
		served := false
		err := node.RunOn(ctx, node.Network{
			Listen: n.host.Listen, Dial: n.host.Dial, Wall: func() time.Time { return time.Now().Add(w.clock(n.ID)) }, Built: func(k node.Deciders) { w.hold(n, k) },
			Local: func(counters cluster.Local) cluster.Local { return recorder{counters, w, n} }, Killed: n.dead.Load,
		}, opts, w.logger(n.ID, &n.dead, w.record), func(node.Info) {
			served = true
			w.add(n.ID, "serves")
		})
		w.hold(n, nil)
		if !n.dead.Load() {
			w.add(n.ID, "ended: %v", err)
		}
		if served && err != nil && ctx.Err() == nil {
			w.fail("node %s ended: %v", n.ID, err)
			return
		}
		wait(ctx, tryAgainAfter)
	}
}

// options returns what a node is started with.
func (w *World) options(n *Node) node.Options {
	w.mu.Lock()
	hidden := w.hidden[n.ID]
	w.mu.Unlock()
	opts := node.Options{
		ID: n.ID, GRPC: addressOn(n.host.Name()), HTTP: n.host.Name() + ":8080", Etcd: []string{etcdAddress}, Cluster: n.cluster,
		DataDir: filepath.Join(w.dir, n.cluster, n.ID), Insecure: true, CounterMemory: counterMemory,
		SnapshotEvery: snapshotEvery, SnapshotMinWindow: time.Second,
	}
	if hidden {
		opts.Advertise = n.host.Name() + ":9" // where it does not listen
	}
	return opts
}

// hide has a node that is yet to start advertise an address at which it is not reached.
func (w *World) hide(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hidden[id] = true
}

// clock returns how far a node's clock is ahead.
func (w *World) clock(id string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clocks[id]
}

func (w *World) setClock(id string, ahead time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clocks[id] = ahead
}

// hold notes what says which partitions a node of the cluster holds; nil if it has ended.
func (w *World) hold(n *Node, k node.Deciders) {
	if n.cluster == foreignName {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.built = slices.DeleteFunc(w.built, func(b built) bool { return b.node == n })
	if k != nil {
		w.built = append(w.built, built{n, k})
	}
}

// ownershipOf returns what says which partitions a node holds, nil if it does not run.
func (w *World) ownershipOf(n *Node) node.Deciders {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.built {
		if b.node == n {
			return b.ownership
		}
	}
	return nil
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (w *World) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf(format, args...))
}

// take takes a node out of those that run; nil if it does not.
func (w *World) take(id string) *Node {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[id]
	delete(w.nodes, id)
	return n
}

// Drain tells a node to stop. It returns a channel that is closed when it has, nil if
// it does not run.
func (w *World) Drain(id string) <-chan struct{} {
	n := w.take(id)
	if n == nil {
		return nil
	}
	n.stop()
	gone := make(chan struct{})
	w.running.Go(func() {
		<-n.done
		n.host.Crash() // nothing of it is left; the name is free again
		close(gone)
	})
	return gone
}

// Kill ends a node at once: its connections break, and nothing that it still does has an effect. It reports whether the node ran, and
// was not told to stop.
func (w *World) Kill(id string) bool {
	n := w.take(id)
	if n != nil {
		n.kill()
	}
	return n != nil
}

func (n *Node) kill() {
	n.dead.Store(true)
	n.host.Crash()
	n.stop()
}

// Occupy starts a node of another cluster, with the id of one that does not run any more, on that one's host. The returned function kills it.
func (w *World) Occupy(id string) (end func(), err error) {
	n, err := w.prepare(id, w.hostOf(id), foreignName)
	if err != nil {
		return nil, err
	}
	w.runNode(n)
	return n.kill, nil
}

// way is what faults do to what one host sends to another.
type way struct {
	cuts  int // how many faults cut it
	delay time.Duration
}

// change changes the way from one host to another.
func (w *World) change(from, to string, f func(*way)) {
	from, to = w.hostOf(from), w.hostOf(to)
	w.mu.Lock()
	defer w.mu.Unlock()
	ends := [2]string{from, to}
	now := w.ways[ends]
	f(&now)
	w.ways[ends] = now
	w.network.Delay(from, to, now.delay)
	if now.cuts > 0 {
		w.network.Cut(from, to)
	} else {
		w.network.Heal(from, to)
	}
}

// cut changes by how many faults a way is cut.
func (w *World) cut(from, to string, by int) {
	w.change(from, to, func(w *way) { w.cuts += by })
}

// delay changes by how much a way is slow.
func (w *World) delay(from, to string, by time.Duration) {
	w.change(from, to, func(w *way) { w.delay += by })
}

// isolate changes by how many faults nothing passes between hosts of two groups.
func (w *World) isolate(some, others []string, by int) {
	for _, a := range some {
		for _, b := range others {
			w.cut(a, b, by)
			w.cut(b, a, by)
		}
	}
}

// others returns the ids of the nodes that run and are not in group.
func (w *World) others(group []string) []string {
	return slices.DeleteFunc(w.ids(), func(id string) bool { return slices.Contains(group, id) })
}

// ids returns the ids of all nodes that run, sorted.
func (w *World) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.nodes))
}

// connect returns a connection from the checker to a node.
func (w *World) connect(id string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addressOn(w.hostOf(id)),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(w.checker.Dial))
}

// Close stops all nodes and etcd, and waits for that.
func (w *World) Close() {
	for _, id := range w.ids() {
		w.Drain(id)
	}
	w.running.Wait()
	w.etcd.Stop()
	_ = os.RemoveAll(w.dir) // of the system's directory for what need not stay
}
