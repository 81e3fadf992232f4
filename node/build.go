package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/net/netutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"

	weirv1 "github.com/weirlimit/weir/api/weir/v1"
)

// Bounds of what connects to a node.
const (
	maxGRPCConnections = 16 << 10
	maxHTTPConnections = 4 << 10
	maxStreams         = 4 << 10 // calls under way on one gRPC connection
	maxGRPCHeader      = 16 << 10
	handshakeTimeout   = time.Second     // also what a silent connection can hold up a stop
	answerTimeout      = time.Second     // for another node to say who it is
	streamWorkers      = 64              // goroutines that are kept for calls; more calls start their own
	minClientPing      = 5 * time.Second // a client that pings more often is cut off
	maxIdle            = 5 * time.Minute // without a call; then a client connects anew
	pingSilent         = 30 * time.Second
	pongTimeout        = 10 * time.Second // then the connection is dead
)

// ruleSource is where the rules in force come from: *rules.Source or *rules.Store.
type ruleSource interface {
	api.RuleStore
	Set() *rules.Set
	Err() error
	OnChange(f func(*rules.Set))
	Run(ctx context.Context) error
}

// node is a node's parts. It implements api.Status.
type node struct {
	opts    Options
	network Network
	log     *slog.Logger
	metrics *prometheus.Registry

	grpcListener, httpListener net.Listener
	pprofListener              net.Listener // nil unless profiles are served
	rules                      ruleSource
	store                      *rules.Store // rules, unless they come from files; else nil
	config                     *api.ConfigServer
	limiter                    *api.Limiter
	etcd                       *etcd.Server // nil if it is not in this process
	registry                   *etcd.Registry
	state                      *etcd.State // on disk
	shard                      *shard.Shard
	router                     *cluster.Router
	membership                 *cluster.Membership
	custody                    *cluster.Custody
	grpc                       *grpc.Server
	peers                      *cluster.Server
	http                       *http.Server
	pprof                      *http.Server // nil unless profiles are served
	health                     *health.Server

	leaving  atomic.Bool
	away     atomic.Bool           // started without etcd, and not registered yet
	drained  atomic.Bool           // somebody has asked this node to hand over what it holds; changed with draining held
	serving  atomic.Bool           // what the health service says
	etcdDied atomic.Pointer[error] // why the one in this process has ended by itself

	draining sync.Mutex // held while drained changes, and until the health service says so; before mu

	mu   sync.Mutex
	self cluster.Node // guarded by mu; as announced

	closers []func() // in the order of building
}

// build makes all parts of a node, and starts nothing but an embedded etcd. If it
// fails, it leaves nothing behind.
func build(ctx context.Context, network Network, opts Options, log *slog.Logger) (_ *node, err error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	n := &node{opts: opts.WithDefaults(), network: network, log: log, metrics: prometheus.NewRegistry()}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.metrics.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	for _, step := range []func(context.Context) error{
		n.listen, n.loadRules, n.openState, n.openRegistry, n.openStore, n.register,
	} {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// close frees what build has made, in the opposite order.
func (n *node) close() {
	for _, c := range slices.Backward(n.closers) {
		c()
	}
	n.closers = nil
}

// listen takes the ports first: the most common mistake shows before anything
// else is touched, and the defaults that depend on the port become known.
func (n *node) listen(ctx context.Context) error {
	open := func(name, address string, most int) (net.Listener, error) {
		l, err := n.network.listen(ctx, address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		n.closers = append(n.closers, func() { _ = l.Close() }) // the server may have closed it
		return netutil.LimitListener(l, most), nil
	}
	var err error
	if n.grpcListener, err = open("grpc", n.opts.GRPC, maxGRPCConnections); err != nil {
		return err
	}
	if n.httpListener, err = open("http", n.opts.HTTP, maxHTTPConnections); err != nil {
		return err
	}
	if n.opts.Pprof != "" {
		if n.pprofListener, err = open("pprof", n.opts.Pprof, maxProfileConnections); err != nil {
			return err
		}
		n.pprof = newProfileServer()
		n.log.Info("serving profiles", "url", "http://"+n.pprofListener.Addr().String()+"/debug/pprof/")
	}
	n.opts.GRPC, n.opts.HTTP = n.grpcListener.Addr().String(), n.httpListener.Addr().String()
	n.opts = n.opts.WithDefaults()
	return n.opts.Validate()
}

// openRegistry connects to etcd, of which it starts one if none is given.
func (n *node) openRegistry(ctx context.Context) error {
	endpoints, dial := n.opts.Etcd, n.network.Dial
	if len(endpoints) == 0 {
		server, err := etcd.StartServer(ctx, etcd.ServerConfig{
			Listen: n.opts.EtcdListen,
			Dir:    filepath.Join(n.opts.DataDir, "etcd"),
		})
		if errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("%w; to join the node that runs there, pass --etcd %s", err, n.opts.EtcdListen)
		}
		if err != nil {
			return err
		}
		n.etcd = server
		n.closers = append(n.closers, server.Close)
		endpoints, dial = []string{server.Endpoint()}, nil
	}
	registry, err := etcd.Open(ctx, etcd.Config{
		Endpoints: endpoints, Cluster: n.opts.Cluster, Known: n.state.Found(), Dial: dial, Logger: n.log, Metrics: n.metrics,
	})
	if err != nil {
		return err
	}
	if n.onlyHere(endpoints) {
		n.log.Warn("others may not reach this node: set advertise to an address of this machine",
			"advertise", n.opts.Advertise, "etcd", strings.Join(endpoints, ","))
	}
	n.registry = registry
	n.opts.Etcd = endpoints
	n.closers = append(n.closers, registry.Close)
	return n.verify(ctx)
}

// loadRules reads the rules of files, if they are given.
func (n *node) loadRules(context.Context) (err error) {
	if n.opts.Rules != "" {
		n.rules, err = rules.Open(n.opts.Rules, n.opts.lyft(), n.log, n.metrics)
	}
	return err
}

// openStore reads the rules of the cluster, unless there are files.
func (n *node) openStore(ctx context.Context) (err error) {
	if n.rules != nil {
		return nil
	}
	cfg := rules.StoreConfig{
		Backend: n.registry, Name: "etcd:" + n.registry.RulesKey(), MaxSize: etcd.MaxRules, Lyft: n.opts.lyft(), Logger: n.log, Metrics: n.metrics,
	}
	if n.away.Load() {
		n.store, err = rules.RestoreStore(cfg, n.state.Found().Rules)
	} else {
		n.store, err = rules.OpenStore(ctx, cfg)
	}
	n.rules = n.store
	return err
}

// register takes the node's place in the cluster, and builds what depends on the
// cluster's parameters.
func (n *node) register(ctx context.Context) error {
	params, incarnation, err := n.identify(ctx)
	if err != nil {
		return err
	}
	n.self = cluster.Node{
		ID: n.opts.ID, Address: n.opts.Advertise, Incarnation: incarnation,
		State: cluster.Joining, Version: Version(), RuleRevision: n.rules.Set().Revision(), OwnRules: n.store == nil,
	}
	n.config = api.NewConfigServer(n.rules)
	n.rules.OnChange(func(s *rules.Set) {
		n.config.Changed()
		n.announce(func(self *cluster.Node) { self.RuleRevision = s.Revision() })
		n.tellEnvoy()
	})
	n.rules.OnChange(n.keepRules)
	n.keepRules(nil)
	n.shard, err = shard.New(shard.Config{
		Partitions: uint32(params.Ring.Partitions),
		MaxBytes:   int(n.opts.CounterMemory),
		Relieve:    debug.FreeOSMemory, // the heap is collected when it has grown: by itself it would wait for minutes
		Metrics:    n.metrics,
	})
	if err != nil {
		return err
	}
	local := n.network.local(n.shard)
	promises := cluster.NewPromises(!n.opts.ForgetDenials, !n.opts.LendNothing)
	n.router = cluster.NewRouter(cluster.RouterConfig{
		Self: n.opts.ID, Local: local, Promises: promises, Dial: cluster.Links(n.network.dial), AttemptTimeout: n.opts.PeerTimeout, Logger: n.log, Metrics: n.metrics,
	})
	n.closers = append(n.closers, n.router.Close)
	n.keep(params, promises)
	if n.away.Load() {
		n.custody.Adopt(n.state.Found().View)
	}
	return n.buildServers(params, local, promises)
}

// keep builds what follows the cluster and keeps the node's partitions.
func (n *node) keep(params cluster.Params, promises *cluster.Promises) {
	n.custody = cluster.NewCustody(cluster.CustodyConfig{
		Self:     cluster.Member{ID: n.opts.ID, Address: n.opts.Advertise, Incarnation: n.self.Incarnation},
		Cluster:  ring.NewHasher([ring.SecretSize]byte(params.Secret)).Key([]byte("cluster")).Hi,
		Shard:    n.shard,
		Router:   n.router,
		Promises: promises,
		Refound: func(ctx context.Context, view uint64, partitions []uint32) error {
			return n.membership.Refound(ctx, view, partitions)
		},
		Adopted: func(v *cluster.View) { n.state.Keep(func(k *etcd.Known) { k.View = v }) },
		Renewed: func() time.Time { return n.registry.Status().Renewed },
		Dial:    n.network.dial,
		Logger:  n.log,
		Metrics: n.metrics,
	}, params.Ring.Partitions)
	if n.network.Built != nil {
		n.network.Built(n.custody)
	}
	n.membership = cluster.NewMembership(n.opts.ID, params.Ring, n.registry, n.router, n.custody.Adopt, n.log)
}

func (n *node) buildServers(params cluster.Params, local cluster.Local, promises *cluster.Promises) error {
	n.limiter = api.NewLimiter(api.Config{
		Rules:   n.rules.Set,
		Hasher:  ring.NewHasher([ring.SecretSize]byte(params.Secret)),
		Decider: n.router,
		Metrics: n.metrics,
		Style:   n.opts.style(),
		Auth:    n.opts.auth(),
		Envoy:   n.opts.envoy(),
	})
	n.peers = cluster.NewServer(local, promises, n.router)
	n.closers = append(n.closers, n.peers.Close)
	n.grpc = newGRPCServer(n.peers.Credentials(insecure.NewCredentials()))
	n.closers = append(n.closers, n.grpc.Stop) // its workers wait for calls from now on
	api.Register(n.grpc, n.limiter, n.config, n)
	n.custody.Register(n.grpc)
	n.health = health.NewServer()
	healthpb.RegisterHealthServer(n.grpc, n.health)
	reflection.Register(n.grpc)
	n.setServing(false)
	var err error
	n.http, err = api.NewHTTPServer(n.limiter, n.config, n, n.metrics)
	return err
}

func newGRPCServer(creds credentials.TransportCredentials) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(creds),
		grpc.ForceServerCodecV2(api.Codec()),
		grpc.MaxRecvMsgSize(api.MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxHeaderListSize(maxGRPCHeader),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: pingSilent, Timeout: pongTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	)
}

// onlyHere reports whether etcd is elsewhere, and the address that others are given
// for this node is loopback.
func (n *node) onlyHere(etcd []string) bool {
	loopback := func(address string) bool {
		host, _, err := net.SplitHostPort(address)
		return err == nil && isLoopback(host)
	}
	return loopback(n.opts.Advertise) && !slices.ContainsFunc(etcd, loopback)
}

var errTaken = errors.New("is taken by a node that runs")

// refuseTakenID looks whether the node that has a key under our id still answers.
// After a crash its key is still there, but nobody is behind it.
func (n *node) refuseTakenID(ctx context.Context) error {
	nodes, err := n.registry.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, other := range nodes {
		if other.ID != n.opts.ID || other.Address == n.opts.Advertise {
			continue // nobody else can answer where this node listens
		}
		if n.answers(ctx, other.Address, other.ID) {
			return fmt.Errorf("id: %q %w at %s; give this one another with --id", other.ID, errTaken, other.Address)
		}
	}
	return nil
}

// answers reports whether the node id runs at address right now.
func (n *node) answers(ctx context.Context, address, id string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+url.PathEscape(address), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(n.network.dial))
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // there is nothing to lose
	resp, err := weirv1.NewRateLimiterHealthClient(conn).GetHealthStatus(ctx, &weirv1.GetHealthStatusRequest{})
	return err == nil && resp.GetNodeId() == id
}

func (n *node) info() Info {
	set := n.rules.Set()
	descriptors := set.Len() > 0
	for r := range set.Rules() {
		descriptors = descriptors && r.Descriptor != nil
	}
	return Info{
		ID:           n.opts.ID,
		GRPC:         n.opts.GRPC,
		HTTP:         n.opts.HTTP,
		Etcd:         strings.Join(n.opts.Etcd, ","),
		EmbeddedEtcd: n.etcd != nil,
		Rules:        set.Len(),
		RulesPath:    n.opts.Rules,
		Descriptors:  descriptors,
	}
}
