package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"regexp"
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
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/weirlimit/weir/api"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/cluster/etcd"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/decisionlog"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/internal/tracing"
	"github.com/weirlimit/weir/overload"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/rules/xds"
	"github.com/weirlimit/weir/shard"
	"github.com/weirlimit/weir/ui"
)

// Bounds of what connects to a node.
const (
	maxGRPCConnections = 16 << 10
	maxHTTPConnections = 4 << 10
	maxAdminConns      = 256             // people and scrapers
	connWindow         = 1 << 20         // bytes that arrive on one gRPC connection before it is told to go on; it bounds no memory (ADR 44)
	maxHealthWatches   = 4 << 10         // calls of Health.Watch under way on a node
	maxStreams         = 4 << 10         // calls under way on one gRPC connection
	maxGRPCHeader      = 128 << 10       // an Envoy may hand on header fields of its clients, of 60 KiB by default
	handshakeTimeout   = time.Second     // also what a silent connection can hold up a stop
	answerTimeout      = time.Second     // for another node to say who it is
	streamWorkers      = 64              // goroutines that are kept for calls; more calls start their own
	minClientPing      = 5 * time.Second // a client that pings more often is cut off
	maxIdle            = 5 * time.Minute // without a call; then a client connects again
	pingSilent         = 30 * time.Second
	pongTimeout        = 10 * time.Second // then the connection is dead
)

// ruleSource is where the rules in force come from: *rules.Source, *rules.Store or *xds.Source.
type ruleSource interface {
	api.RuleStore
	Set() *rules.Set
	Err() error
	OnChange(f func(*rules.Set))
	Run(ctx context.Context) error
	Reread()
}

// node is a node's parts. It implements api.Status.
type node struct {
	opts    Options
	network Network
	log     *slog.Logger
	metrics *prometheus.Registry

	grpcListener, httpListener net.Listener
	adminListener              net.Listener // nil without an admin port
	pprofListener              net.Listener // nil unless profiles are served
	rlsListener                net.Listener // nil without a port for Envoy alone
	rules                      ruleSource
	store                      *rules.Store // rules, unless they come from files or an xDS server; else nil
	xds                        *xds.Source  // rules, if they come from an xDS server; else nil
	config                     *api.ConfigServer
	limiter                    *api.Limiter
	etcd                       *etcd.Server // nil if it is not in this process
	registry                   *etcd.Registry
	state                      *etcd.State // on disk
	shard                      *shard.Shard
	evictions                  *evictions
	ownAddress                 atomic.Pointer[error] // why the only member does not reach itself, nil if it does
	snapshots                  *snapshots
	greeter                    *cluster.Greeter
	overload                   *overload.Control
	router                     *cluster.Router
	membership                 *cluster.Membership
	owners                     *cluster.Owners
	grpc                       *grpc.Server
	peers                      *cluster.Server
	http                       *http.Server
	admin                      *adminServer // nil without an admin port
	rls                        *rlsServer   // nil without a port for Envoy alone
	names                      []string     // host names of this node, of its own options; read-only
	refusedHost                sync.Once    // the first request that is refused for its Host is logged
	pprof                      *http.Server // nil unless profiles are served
	health                     *health.Server
	healthWatches              healthWatches
	certs                      *certs.Source // nil without TLS
	audit                      *audit.Log
	auditFile                  *auditFile        // nil without one
	decisions                  *decisionlog.Log  // nil without one
	tracing                    *tracing.Tracing  // nil without it
	top                        *topkeys.Recorder // nil without it
	tokens                     *tokenFile        // nil without one
	clusterTokens              *clusterTokens    // nil without TLS
	access                     *api.Access       // nil without TLS: all is permitted, at every port

	lastXDSCertEnd atomic.Pointer[time.Time] // of --xds-cert when it could be read last; nil before

	leaving  atomic.Bool
	offline  atomic.Bool           // started without etcd, and not registered yet
	seen     atomic.Bool           // the registry has told what it holds
	drained  atomic.Bool           // the node was asked to hand over its partitions; changed with draining held
	serving  atomic.Bool           // what the health service says
	started  atomic.Bool           // it has been a member, or offline, that reaches the others
	etcdDied atomic.Pointer[error] // why the one in this process has ended by itself

	draining sync.Mutex // held while drained changes, and until the health service says so; before mu

	mu   sync.Mutex
	self cluster.Node // guarded by mu; as announced

	loads loads
	ui    *ui.Server

	closers []func() // in the order of building
}

// schedulerLatency is the metric of the runtime that says how long goroutines wait for a processor.
var schedulerLatency = regexp.MustCompile(`^/sched/latencies:seconds$`)

// build makes all parts of a node, and starts nothing but an embedded etcd. If it
// fails, it leaves nothing behind.
func build(ctx context.Context, network Network, opts Options, log *slog.Logger) (_ *node, err error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	n := &node{opts: opts.WithDefaults(), network: network, log: log, metrics: prometheus.NewRegistry()}
	n.loads.node = n
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	n.metrics.MustRegister(
		collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.GoRuntimeMetricsRule{Matcher: schedulerLatency})),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	for _, step := range []func(context.Context) error{
		n.listen, n.openAudit, n.openDecisions, n.openTracing, n.openCerts, n.openAccess, n.loadRules, n.openState, n.openRegistry, n.openTokens, n.openStore, n.register,
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
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("%s: %w; name another address with --%s", name, err, name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		n.closers = append(n.closers, func() { _ = l.Close() }) // the server may have closed it
		return netutil.LimitListener(l, most), nil
	}
	n.names = n.opts.ownNames() // listeners have addresses
	var err error
	if n.grpcListener, err = open("grpc", n.opts.GRPC, maxGRPCConnections); err != nil {
		return err
	}
	if n.httpListener, err = open("http", n.opts.HTTP, maxHTTPConnections); err != nil {
		return err
	}
	if n.opts.Admin != "" {
		if n.adminListener, err = open("admin", n.opts.Admin, maxAdminConns); err != nil {
			return err
		}
		n.opts.Admin = n.adminListener.Addr().String()
	}
	if err = n.listenRLS(open); err != nil {
		return err
	}
	if n.opts.Pprof != "" {
		if n.pprofListener, err = open("pprof", n.opts.Pprof, maxProfileConnections); err != nil {
			return err
		}
		n.pprof = newProfileServer(n.guard(n.opts.Pprof))
		n.log.Info("serving profiles", "url", "http://"+n.pprofListener.Addr().String()+"/debug/pprof/")
	}
	n.opts.GRPC, n.opts.HTTP = n.grpcListener.Addr().String(), n.httpListener.Addr().String()
	n.opts = n.opts.WithDefaults()
	return n.opts.Validate()
}

// loadRules reads the rules of files, or prepares to read those of an xDS server, if they are given.
func (n *node) loadRules(context.Context) (err error) {
	switch {
	case n.opts.Rules != "":
		n.rules, err = rules.Open(n.opts.Rules, n.opts.rules(), n.log, n.metrics)
	case n.opts.XDSServer != "":
		err = n.openXDS(n.xdsFile())
	}
	return err
}

// openStore reads the rules of the cluster, unless this node has rules of its own.
func (n *node) openStore(ctx context.Context) (err error) {
	if n.rules != nil {
		return nil
	}
	cfg := rules.StoreConfig{
		Backend: n.registry, Name: "etcd:" + n.registry.RulesKey(), MaxSize: etcd.MaxRules, Options: n.opts.rules(), Logger: n.log, Metrics: n.metrics,
		Node: n.opts.callsAt(),
	}
	if n.offline.Load() {
		n.store, err = rules.RestoreStore(cfg, n.state.Found().Rules)
	} else {
		if n.state != nil && n.state.Found() != nil { // else the doctor asks, or this node runs for the first time
			cfg.Known = n.state.Found().Rules
		}
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
		State: cluster.Joining, Version: Version(), RulesHash: n.rules.Set().Hash(), OwnRules: n.store == nil, TLS: n.certs != nil,
		Admin: n.opts.advertisedAdmin(),
	}
	n.config = api.NewConfigServer(n.rules)
	n.rules.OnChange(func(s *rules.Set) {
		n.config.Changed()
		n.announce(func(self *cluster.Node) { self.RulesHash = s.Hash() })
		n.tellEnvoy()
	})
	n.rules.OnChange(n.keepRules)
	n.auditOwnRules()
	n.keepRules(nil)
	n.shard, err = shard.New(shard.Config{
		Partitions: uint32(params.Ring.Partitions),
		MaxBytes:   int(n.opts.CounterMemory),
		Relieve:    debug.FreeOSMemory, // the heap is collected when it has grown: by itself it would wait for minutes
		Wall:       n.network.Wall,
		Metrics:    n.metrics,
	})
	if err != nil {
		return err
	}
	n.greeter = cluster.NewGreeter(cluster.Identity{Cluster: fingerprint(params), ID: n.opts.ID, Incarnation: incarnation}, n.shard.Now, n.log)
	n.evictions = &evictions{count: n.shard.Evicted, log: n.log}
	n.overload = overload.New(n.opts.PeerTimeout/4, n.opts.domainWeights(), n.metrics)
	local := n.network.local(n.shard)
	n.router = cluster.NewRouter(cluster.RouterConfig{
		Self: n.opts.ID, Local: local, DenialLeases: cluster.NewGivenDenialLeases(!n.opts.ForgetDenials, !n.opts.LendNothing), Busy: n.overload.Busy, Tracer: n.tracing.Tracer(), Dial: cluster.GreetingDialer(n.dial, n.greeter), AttemptTimeout: n.opts.PeerTimeout, Logger: n.log, Metrics: n.metrics,
	})
	n.closers = append(n.closers, n.router.Close)
	n.top = n.newTopKeys(params)
	n.keep(params)
	n.snapshots = n.newSnapshots(params, incarnation)
	n.snapshots.restore()
	n.self.Restored = n.snapshots.copies.Restored()
	if n.offline.Load() {
		n.owners.Adopt(n.state.Found().View)
	}
	return n.buildServers(params, local)
}

// fingerprint tells clusters apart, and says nothing of their secrets.
func fingerprint(params cluster.Params) uint64 {
	return ring.NewHasher([ring.SecretSize]byte(params.Secret)).Key([]byte("cluster")).Hi
}

// keep builds what follows the cluster and keeps the node's partitions.
func (n *node) keep(params cluster.Params) {
	n.owners = cluster.NewOwners(cluster.OwnersConfig{
		Self:      cluster.Member{ID: n.opts.ID, Address: n.opts.Advertise, Incarnation: n.self.Incarnation},
		Counted:   n.counted(),
		Greeter:   n.greeter,
		Shard:     n.shard,
		Router:    n.router,
		Keep:      n.state.KeepView,
		State:     n.readiness,
		Load:      n.loads.load,
		Renewed:   func() time.Time { return n.registry.Status().Renewed },
		Granted:   func() time.Time { return n.registry.Status().Granted },
		ReadView:  func(ctx context.Context) (*view.View, error) { return n.registry.ReadView(ctx) },
		Dial:      n.dial,
		Top:       n.top,
		Events:    n.ownEvents,
		Decisions: n.ownDecisions,
		Logger:    n.log,
		Metrics:   n.metrics,
	}, params.Ring)
	n.membership = cluster.NewMembership(n.opts.ID, params.Ring, n.registry, n.router, n.owners, n.log)
	if n.network.Built != nil {
		n.network.Built(n.owners)
	}
}

func (n *node) buildServers(params cluster.Params, local cluster.Local) error {
	n.limiter = api.NewLimiter(api.Config{
		Rules:     n.rules.Set,
		Hasher:    ring.NewHasher([ring.SecretSize]byte(params.Secret)),
		Decider:   n.router,
		Started:   n.started.Load,
		View:      n.viewNumber,
		Overload:  n.overload,
		Audit:     n.audit,
		Decisions: n.decisions,
		Tracing:   n.tracing,
		Top:       n.top,
		Metrics:   n.metrics,
		Style:     n.opts.style(),
		Auth:      n.opts.auth(),
		Envoy:     n.opts.envoy(),
		Logger:    n.log,
	})
	n.metrics.MustRegister(nodeCollector{n})
	n.peers = cluster.NewServer(local, n.router, n.greeter)
	n.closers = append(n.closers, n.peers.Close)
	permits := n.access
	if n.adminListener != nil {
		permits = n.access.At(api.PublicPort)
	}
	n.grpc = newGRPCServer(grpc.Creds(n.credentials()), n.limiter.InTapHandle(permits.Tap(n.limiter.Tap)), grpc.NumStreamWorkers(streamWorkers))
	n.closers = append(n.closers, n.grpc.Stop) // its workers wait for calls from now on
	n.health = health.NewServer()
	n.healthWatches.Server = n.health
	n.owners.Register(api.Bounded(n.grpc))
	n.registerCalls(n.grpc, permits)
	n.setServing(false)
	if err := api.CheckServices(n.grpc); err != nil {
		return err
	}
	err := n.newUI(ring.NewHasher([ring.SecretSize]byte(params.Secret)))
	if err != nil {
		return err
	}
	if n.http, err = n.newHTTPServer(n.opts.HTTP, api.HTTPConfig{Permits: permits}); err == nil && n.adminListener != nil {
		n.admin, err = n.newAdminServer()
	}
	if err == nil && n.rlsListener != nil {
		n.rls, err = n.newRLSServer()
	}
	return err
}

// registerCalls registers what clients ask over gRPC.
func (n *node) registerCalls(server *grpc.Server, permits *api.Access) {
	api.Register(server, n.limiter, n.config, n, permits)
	bounded := api.Bounded(server)
	healthpb.RegisterHealthServer(bounded, &n.healthWatches)
	reflection.Register(bounded)
}

// newHTTPServer returns the server of HTTP at an address of this node.
func (n *node) newHTTPServer(address string, cfg api.HTTPConfig) (*http.Server, error) {
	cfg.Gather, cfg.Guard, cfg.UI = n.metrics, n.guard(address), n.ui
	s, err := api.NewHTTPServer(n.limiter, n.config, n, cfg)
	if err == nil && n.certs != nil {
		s.TLSConfig = n.certs.HTTP(certs.ClientAuth(n.opts.TLSClientAuth))
		s.ConnState = func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				n.certs.Closed(conn)
			}
		}
	}
	return s, err
}

// newGRPCServer returns a server with the bounds that all have.
func newGRPCServer(options ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(append(options, api.ServerOptions()...),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(api.StreamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.MaxHeaderListSize(maxGRPCHeader),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: maxIdle, Time: pingSilent, Timeout: pongTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minClientPing, PermitWithoutStream: true}),
	)...)
}

var errTaken = errors.New("is taken by a node that runs")

// refuseTaken looks whether a node that runs has our id, or our address. After a crash its key
// is still there, but it answers no more.
func (n *node) refuseTaken(ctx context.Context, params cluster.Params) error {
	nodes, err := n.registry.Nodes(ctx)
	if err != nil {
		return err
	}
	if err := n.refuseMixed(nodes); err != nil {
		return err
	}
	g := cluster.NewGreeter(cluster.Identity{Cluster: fingerprint(params), ID: n.opts.ID}, func() int64 { return 0 }, slog.New(slog.DiscardHandler))
	for _, other := range nodes {
		sameID, sameAddress := other.ID == n.opts.ID, other.Address == n.opts.Advertise
		if sameID == sameAddress { // neither; or it is this node before it was started again, as no other can listen there
			continue
		}
		switch err := n.knock(ctx, g, other.Member()); {
		case sameID && certs.IsRefusal(err, other.ID):
			return fmt.Errorf("id: %q %w at %s, and this one could not join: %w; give this one a certificate of the cluster's CA (--tls-cert, --tls-ca), or another id with --id",
				other.ID, errTaken, other.Address, err)
		case err != nil:
		case sameID:
			return fmt.Errorf("id: %q %w at %s; give this one another with --id", other.ID, errTaken, other.Address)
		default:
			return fmt.Errorf("advertise: %s %w: %q; give this one an address of its own with --advertise", other.Address, errTaken, other.ID)
		}
	}
	return nil
}

// knock returns why a node does not answer in the name of a member, nil if it does.
func (n *node) knock(ctx context.Context, g *cluster.Greeter, m cluster.Member) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err := g.Knock(ctx, n.dial, m)
	return err
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
		Admin:        n.opts.Admin,
		Etcd:         strings.Join(n.opts.Etcd, ","),
		EmbeddedEtcd: n.etcd != nil,
		Rules:        set.Len(),
		RulesPath:    n.opts.Rules,
		XDS:          n.opts.XDSServer,
		RLS:          n.opts.RLSListen,
		Descriptors:  descriptors,
		Reloader:     &Reloader{n.rules, n.certs, n.tokens, n.auditFile, n.decisions},
		Parts:        &Parts{n},
	}
}
