package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/credentials"

	"github.com/weirlimit/weir/cluster"
)

// Config says which etcd a registry uses and how.
type Config struct {
	// Endpoints of the etcd cluster, as host:port, at least one.
	Endpoints []string
	// Cluster names the cluster in etcd: 1 to 64 bytes of letters, digits, '.',
	// '_' and '-'.
	Cluster string
	// LeaseTTL is how long the node's key outlives its last renewal, 2 s to
	// 10 min, rounded up to seconds. 0 means DefaultLeaseTTL.
	LeaseTTL time.Duration
	// Dial connects to an endpoint. Nil means by TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Credentials secure connections. Nil means not to.
	Credentials credentials.TransportCredentials
	// User and Password are those of an etcd with authentication. Empty means none.
	User, Password string
	// Known is what the node knows from an earlier run, nil if it knows nothing. What etcd
	// has must not be less.
	Known *Known
	// Wait is how long Open waits for the first answer, if nothing is known. 0 means DefaultWait.
	Wait time.Duration
	// Logger gets one line per change of state. Nil means none.
	Logger *slog.Logger
	// Metrics takes the metrics, until Close. Nil means none.
	Metrics prometheus.Registerer
}

func (c *Config) validate() error {
	if len(c.Endpoints) == 0 || len(c.Endpoints) > MaxEndpoints || slices.Contains(c.Endpoints, "") {
		return fmt.Errorf("etcd: endpoints %q are not 1 to %d addresses", c.Endpoints, MaxEndpoints)
	}
	if err := checkName("cluster", c.Cluster, maxClusterName); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if c.LeaseTTL == 0 {
		c.LeaseTTL = DefaultLeaseTTL
	}
	if c.LeaseTTL < minLeaseTTL || c.LeaseTTL > maxLeaseTTL {
		return fmt.Errorf("etcd: lease of %v is not %v to %v long", c.LeaseTTL, minLeaseTTL, maxLeaseTTL)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Endpoints = slices.Clone(c.Endpoints)
	return nil
}

// ErrSuperseded is what Run ends with when another node was started under the
// announced id: the key in etcd has a higher incarnation.
var ErrSuperseded = errors.New("another node was started under this id")

// Registry is a cluster.Registry in etcd. Its methods may be called from several
// goroutines.
type Registry struct {
	cluster      string
	ttl          time.Duration
	keys         keys
	log          *slog.Logger
	client       *clientv3.Client
	where        string // the endpoints, for messages
	metrics      *metrics
	reachability *reachability

	known     *Known        // from an earlier run; nil if there was none
	announced chan struct{} // its slot is filled when the node lease has something to look at

	mu     sync.Mutex
	params []byte        // guarded by mu; as stored, once Bootstrap has seen them
	node   cluster.Node  // guarded by mu; what to announce, if its ID is not empty
	put    receipt       // guarded by mu; the node lease's last put
	view   seenView      // guarded by mu
	stop   func()        // guarded by mu; ends Run, nil before it
	ended  chan struct{} // closed when Run has returned; made by it, guarded by mu
	closed bool          // guarded by mu
}

var _ cluster.Registry = (*Registry)(nil)

// receipt says what stands in etcd of our node.
type receipt struct {
	node        cluster.Node
	lease       clientv3.LeaseID
	modRevision int64 // of the key; 0 before the first put
}

// seenView is what Run knows of the view.
type seenView struct {
	number uint64 // of the newest that was seen; 0 before the first
	alarm  string // why the stored one is not believed, or empty
	wiped  bool   // it is older than number, so that nothing may be written over it
}

// Status says how the registry is doing.
type Status struct {
	// Reachable says whether etcd answers; see Registry.Reachable.
	Reachable bool
	// Renewed is when the last renewal of the lease that succeeded was sent. The
	// zero time means that there is no lease.
	Renewed time.Time
	// Granted is when the answer came which said that the lease was granted. The zero time means that there is no lease.
	Granted time.Time
	// Wiped says whether etcd has less than it had, or something else: then nothing is
	// written to it.
	Wiped bool
	// Alarm says in one sentence why what etcd holds is not believed and needs an
	// operator: it was wiped, restored from a backup, or damaged. Empty is good.
	Alarm string
}

// Open connects to etcd. If no endpoint answers it fails after Config.Wait, or when ctx ends; but if
// something is known from an earlier run, it waits for a second and goes on without, as
// Reachable tells.
func Open(ctx context.Context, cfg Config) (*Registry, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	where := strings.Join(cfg.Endpoints, ", ")
	client, err := dial(&cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd at %s: %w", where, err)
	}
	r := &Registry{
		cluster:   cfg.Cluster,
		ttl:       cfg.LeaseTTL,
		keys:      keysOf(cfg.Cluster),
		log:       cfg.Logger,
		client:    client,
		where:     where,
		known:     cfg.Known,
		announced: make(chan struct{}, 1),
	}
	patience := cmp.Or(cfg.Wait, DefaultWait)
	if r.known != nil {
		patience = knownTimeout
		r.params, r.view.number = r.known.Params, r.known.View.Number
	}
	silent := r.awaitFirst(ctx, patience)
	if silent != nil && (r.known == nil || ctx.Err() != nil) {
		client.Close()
		return nil, fmt.Errorf("etcd at %s: %w", where, silent)
	}
	if r.metrics, err = newMetrics(cfg.Metrics); err != nil {
		client.Close()
		return nil, fmt.Errorf("etcd: registering metrics: %w", err)
	}
	r.reachability = newReachability(r.log, r.metrics)
	if silent != nil {
		r.reachability.unanswered(fmt.Errorf("etcd at %s: %w", where, silent))
	}
	return r, nil
}

// awaitFirst waits for the first answer of etcd, and tells that it waits. It returns why there is none.
func (r *Registry) awaitFirst(ctx context.Context, patience time.Duration) error {
	told := time.AfterFunc(tellAfter, func() {
		r.log.Warn("waiting for etcd, which does not answer", "etcd", r.where, "longest", patience.String())
	})
	defer told.Stop()
	return awaitAnswer(ctx, r.client, r.keys.params, patience)
}

// Where returns the endpoints, for messages.
func (r *Registry) Where() string { return r.where }

// Close ends Run, if need be, waits for it and disconnects. It may be called
// again.
func (r *Registry) Close() {
	r.mu.Lock()
	again := r.closed
	r.closed = true
	stop, ended := r.stop, r.ended
	r.mu.Unlock()
	if stop != nil {
		stop()
		<-ended
	}
	if !again {
		r.client.Close() // its error is the cancellation that it causes itself
		r.metrics.unregister()
	}
}

// Announce makes node known to the others, now if etcd answers and otherwise as
// soon as it does again, until Run ends. Every call replaces what the last one
// said; the ID must stay the same. It does not block.
func (r *Registry) Announce(node cluster.Node) {
	if err := checkName("node", node.ID, maxNodeID); err != nil {
		r.log.Error("node cannot be announced", "error", err)
		return
	}
	r.mu.Lock()
	r.node = node
	r.mu.Unlock()
	r.nudge()
}

// nudge makes the node lease look at the announcement.
func (r *Registry) nudge() {
	select {
	case r.announced <- struct{}{}:
	default: // it has not looked since the last nudge
	}
}

// Reachable reports whether etcd answers: whether anything has succeeded since
// the last failure, or at least within the last 3 s.
func (r *Registry) Reachable() bool { return r.reachability.status().Reachable }

// Status returns how the registry is doing.
func (r *Registry) Status() Status {
	s := r.reachability.status()
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Alarm, s.Wiped = r.view.alarm, r.view.wiped
	return s
}

// Nodes returns the nodes that are announced now, sorted by ID.
func (r *Registry) Nodes(ctx context.Context) ([]cluster.Node, error) {
	var resp *clientv3.GetResponse
	err := r.call(ctx, openTimeout, func(ctx context.Context) (err error) {
		resp, err = r.client.Get(ctx, r.keys.nodes, clientv3.WithPrefix(), clientv3.WithLimit(maxNodes))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes of cluster %q: %w", r.cluster, err)
	}
	m := newCache(r.keys, r.log)
	m.replace(resp.Kvs, resp.Header.Revision)
	return m.sortedNodes(), nil
}
