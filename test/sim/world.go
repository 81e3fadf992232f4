package sim

import (
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
	checkerHost = "checker"

	partitions    = 251                    // of the ring: enough for all keys and nodes, and a quarter of the work of the default
	tryAgainAfter = 500 * time.Millisecond // a node that could not start
	counterMemory = 8 << 20
)

// World is a cluster in memory, with its etcd. It is made and used in one bubble, by
// several goroutines.
type World struct {
	*Timeline
	network *network.Network
	etcd    *memetcd.Server
	there   *network.Host // of etcd
	checker *network.Host
	dir     string         // of what nodes keep on disk, by id: a node that starts again finds it
	running sync.WaitGroup // all nodes that were ever started

	partitions map[Key]uint32 // of the keys
	record     *record
	mu         sync.Mutex
	traces     map[Key][]entry   // of who had their partitions; guarded by mu
	nodes      map[string]*Node  // that run, by id; guarded by mu
	ways       map[[2]string]way // from one host to another; guarded by mu
	failures   []string          // guarded by mu
	built      []built           // nodes that run, or have been told to stop or killed and not ended; guarded by mu
}

// built is a node as it runs, and what says which partitions it holds.
type built struct {
	node    *Node
	custody *cluster.Custody
}

// Node is a node that runs.
type Node struct {
	ID   string
	host *network.Host
	stop context.CancelFunc
	done chan struct{} // closed when it has ended

	dead atomic.Bool // killed: what it says does not count
}

// NewWorld returns a world with an etcd, and without nodes.
func NewWorld() (*World, error) {
	w := &World{
		Timeline: &Timeline{start: time.Now()}, network: network.New(), etcd: memetcd.New(),
		nodes: make(map[string]*Node), ways: make(map[[2]string]way),
		partitions: make(map[Key]uint32), record: newRecord(), traces: make(map[Key][]entry),
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

func address(id string) string { return id + ":9090" }

// Start starts a node. If it cannot, it tries again, as whoever looks after nodes would.
func (w *World) Start(id string) error {
	host, err := w.network.Host(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n := &Node{ID: id, host: host, stop: cancel, done: make(chan struct{})}
	w.mu.Lock()
	w.nodes[id] = n
	w.mu.Unlock()
	w.running.Go(func() {
		defer close(n.done)
		w.run(ctx, n)
	})
	return nil
}

func (w *World) run(ctx context.Context, n *Node) {
	opts := node.Options{
		ID: n.ID, GRPC: address(n.ID), HTTP: n.ID + ":8080", Etcd: []string{etcdAddress}, Cluster: clusterName,
		DataDir: filepath.Join(w.dir, n.ID), Insecure: true, CounterMemory: counterMemory,
	}
	for again := false; ctx.Err() == nil; again = true {
		if again {
			w.add(n.ID, "is started again")
		}
		served := false
		err := node.RunOn(ctx, node.Network{
			Listen: n.host.Listen, Dial: n.host.Dial, Built: func(k *cluster.Custody) { w.hold(n, k) },
			Local: func(counters cluster.Local) cluster.Local { return recorder{counters, w, n} },
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

// hold notes what says which partitions a node holds; nil if it has ended.
func (w *World) hold(n *Node, k *cluster.Custody) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.built = slices.DeleteFunc(w.built, func(b built) bool { return b.node == n })
	if k != nil {
		w.built = append(w.built, built{n, k})
	}
}

// custodyOf returns what says which partitions a node holds, nil if it does not run.
func (w *World) custodyOf(n *Node) *cluster.Custody {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.built {
		if b.node == n {
			return b.custody
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

// Kill ends a node at once: its connections break, and whatever it still does, nobody
// hears of it.
func (w *World) Kill(id string) {
	if n := w.take(id); n != nil {
		n.dead.Store(true)
		n.host.Crash()
		n.stop()
	}
}

// way is what faults do to what one host sends to another.
type way struct {
	cuts  int // how many faults cut it
	delay time.Duration
}

// change changes the way from one host to another.
func (w *World) change(from, to string, f func(*way)) {
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
	return grpc.NewClient("passthrough:///"+address(id),
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
