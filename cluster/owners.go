package cluster

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/internal/topkeys"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// Owners has a node decide by views that name the node which has each partition (ADR 37). An ownership.Node has the copies. Owners connects it
// with other nodes, with the registry and with the router. It is safe for concurrent use.
type Owners struct {
	OwnersConfig
	inquiries
	knownMembers
	goneLeases
	*admission
	node    *ownership.Node
	params  ring.Params
	metrics ownershipMetrics

	farewellHeard chan struct{} // full when a life has said farewell; has room for one
	standIns      standIns
	standbys      []atomic.Pointer[otherMember] // by partition that this node decides for, for those that do not lock
	running       sync.WaitGroup                // the goroutines of Run

	planning sync.Mutex
	planned  view.CachedPlan // guarded by planning

	mu           sync.Mutex
	view         *view.View         // the newest that was adopted; guarded by mu
	newest       view.NewestReports // guarded by mu
	changed      time.Time          // when the last change of members was adopted; guarded by mu
	confirmsNone bool               // this node confirms no decision lease any more; guarded by mu
	granted      time.Time          // when the etcd lease was granted that the decision lease knows of; guarded by mu
	renewed      time.Time          // the last renewal that the decision lease knows of; guarded by mu
	waited       bool               // a partition was not settled when it was looked last; guarded by mu
	ctx          context.Context    // ends with Run; nil before it; guarded by mu
}

// Times of Owners.
const (
	heartbeatEvery = 500 * time.Millisecond // to each member
	callTimeout    = 500 * time.Millisecond // of one call to a peer
	readAgain      = 50 * time.Millisecond  // after an attempt to read the view that failed
	doubtAfter     = 3 * time.Second        // a change of members that was not adopted is a problem to tell of
)

// OwnersConfig says what Owners works with. Every field is required, unless it says what nil is.
type OwnersConfig struct {
	// Self is this node. The incarnation 0 is that of a node that has started without its
	// registry: see Become.
	Self Member
	// Counted is the last incarnation that the registry has given this node, 0 if it is not known. It is used if Self has none.
	Counted uint64
	// Greeter says who this node is. What comes from another cluster, or is meant for another node, is refused.
	Greeter *Greeter
	// Shard has the counters, and Router what is said about them.
	Shard  *shard.Shard
	Router *Router
	// Keep is told of every view that is adopted. It must not block.
	Keep func(*view.View)
	// State returns what this node is doing. It is called with no lock held.
	State func() State
	// Load returns what heartbeats report of this node. It is called with no lock held, and must return at once.
	Load func() Load
	// Renewed returns when the last renewal of the node's etcd lease was sent that succeeded. It
	// is called with no lock held.
	Renewed func() time.Time
	// Granted returns when etcd has granted the node's etcd lease that is in force, the zero time if there is none. It is called with no
	// lock held.
	Granted func() time.Time
	// ReadView reads the view that etcd has now, linearizably, nil if there is none.
	ReadView func(ctx context.Context) (*view.View, error)
	// Dial connects to the gRPC port of a node.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Top has the keys that clients have asked this node for most; nil if it keeps no lists.
	Top *topkeys.Recorder
	// Events returns what has happened at this node, the newest first. It is called with no lock held.
	Events func(ctx context.Context) []Event
	// Decisions returns the lines of this node's decision log since an instant. The error has a status code and says what the log
	// lacks. It is called with no lock held.
	Decisions func(since time.Time) (io.ReadCloser, error)

	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// NewOwners returns the Owners of a node that has no copies: it seals all partitions of the shard.
func NewOwners(c OwnersConfig, params ring.Params) *Owners {
	o := &Owners{
		OwnersConfig: c, params: params,
		standbys: make([]atomic.Pointer[otherMember], params.Partitions), farewellHeard: make(chan struct{}, 1),
	}
	o.knownMembers.self, o.knownMembers.router = o.life, c.Router
	o.knownMembers.byLife.Store(new(map[view.Life]*otherMember))
	o.knownMembers.farewells.Store(new([]view.Life))
	o.standIns.o = o
	o.standIns.byPartition.Store(new([]view.Life))
	o.inquiries = inquiries{
		self: c.Self.ID, greeter: c.Greeter, router: c.Router, members: o.knownMembers.all, caller: o.caller, status: o.HandoverStatus, load: o.Load,
		top: c.Top, events: c.Events, log: c.Decisions, sendsDecisions: make(chan struct{}, decisionStreams),
	}
	if c.Self.Incarnation == 0 {
		o.Self.Incarnation = view.UncountedIncarnation(c.Counted, time.Now(), rand.Uint64())
	}
	o.Greeter.become(o.Self.Incarnation)
	o.admission = newAdmission(c.Self.ID, c.Greeter, c.Dial, c.Router.Reaches, c.Renewed, c.Logger)
	o.metrics = newOwnershipMetrics(c.Metrics, o)
	o.node = ownership.NewNode(ownership.Config{
		Self: o.life(), Shard: c.Shard, Partitions: params.Partitions, Plan: o.Plan, Peers: o.carrier(), Reports: o.Reports, IsGone: o.isGone,
		HasSaidFarewell: o.knownMembers.hasSaidFarewell, StandIns: o.standIns.all, Attest: o.attest, Observer: observer{o}, Logger: c.Logger,
	})
	c.Router.own.locator = locator{o}
	c.Router.own.denialLeases.strictAcks = &strictAcks{
		standbys: o.standbys, urgent: o.node.Hurry, started: time.Now(), log: c.Logger,
		deferred: o.metrics.deferred, unacknowledged: o.metrics.unacknowledged, parts: make([]owed, params.Partitions),
	}
	return o
}

// life returns this life of the node.
func (o *Owners) life() view.Life {
	return view.Life{ID: o.Self.ID, Incarnation: o.Greeter.Self().Incarnation}
}

// Become gives a node that has started without its registry the incarnation that this has counted since. No view names the one that it had.
func (o *Owners) Become(incarnation uint64) {
	o.Greeter.become(incarnation)
	o.node.Become(o.life())
}

// Plan implements Electorate.
func (o *Owners) Plan(v *view.View) view.Plan {
	o.planning.Lock()
	defer o.planning.Unlock()
	planned, err := o.planned.For(o.params, v)
	if err != nil { // the params were checked when the cluster was founded
		o.Logger.Error("no plan for a view", "view", v.Number, "error", err)
		return make(view.Plan, o.params.Partitions)
	}
	o.planned = planned
	return planned.Plan
}

// Adopt makes v the view, unless a newer one is.
func (o *Owners) Adopt(v *view.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view != nil && v.Number <= o.view.Number || len(v.Partitions) != o.params.Partitions {
		return
	}
	routing, err := RoutingView(v)
	if err != nil {
		o.Logger.Error("view refused", "view", v.Number, "error", err)
		return
	}
	if o.view == nil || o.view.Changed != v.Changed {
		o.changed = time.Now()
	}
	if o.view != nil && v.Waived > o.view.Waived {
		o.metrics.waived.Inc()
	}
	o.view = v
	o.meet(v)
	o.newest.Keep(v)
	o.keepFarewells()
	o.node.Adopt(v)
	o.newest.Note(o.node.Report())
	o.Router.SetView(routing)
	o.Keep(v)
	o.knownMembers.beatSoon()
}

// number returns the number of the newest view, 0 before the first.
func (o *Owners) number() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view == nil {
		return 0
	}
	return o.view.Number
}

// Reports returns the newest reports of all lives that the view names.
func (o *Owners) Reports() view.Reports {
	own := o.node.Report()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.newest.Note(own)
	return o.newest.All()
}

// Run drives the copies until ctx ends.
func (o *Owners) Run(ctx context.Context) {
	o.mu.Lock()
	o.ctx = ctx
	for _, c := range *o.knownMembers.byLife.Load() {
		o.attend(c)
	}
	o.running.Go(func() { o.admission.run(ctx) })
	o.running.Go(func() { o.knownMembers.askAboutLost(ctx) })
	o.mu.Unlock()
	o.node.Run(ctx)
	o.mu.Lock()
	for _, c := range *o.knownMembers.byLife.Load() {
		c.leave()
	}
	o.mu.Unlock()
	o.running.Wait()
}

// attest has the etcd lease confirm the decision lease, and tells the others once this node has settled. It looks which members are lost. The node calls it each time
// that it looks at the clock.
func (o *Owners) attest() {
	o.standIns.lookSometimes()
	granted, renewed, waits := o.Granted(), o.Renewed(), o.node.IsWaiting()
	o.mu.Lock()
	isNew, isRenewed := granted != o.granted && !granted.IsZero(), renewed.After(o.renewed)
	settled, ctx := o.waited && !waits, o.ctx
	o.granted, o.waited = granted, waits
	if isRenewed {
		o.renewed = renewed
	}
	o.mu.Unlock()
	if isNew {
		o.node.Granted()
		o.running.Go(func() { o.read(ctx, granted) })
	}
	if isRenewed {
		o.node.Renewed(renewed)
	}
	if settled {
		o.knownMembers.beatSoon()
	}
}

// read reads the view once an etcd lease was granted, until that succeeds or another one was granted.
func (o *Owners) read(ctx context.Context, granted time.Time) {
	for ctx.Err() == nil {
		began := time.Now()
		v, err := o.ReadView(ctx)
		if err == nil && v != nil {
			o.Adopt(v)
			o.node.Read(began, v.Number)
			return
		}
		o.mu.Lock()
		over := o.granted != granted
		o.mu.Unlock()
		if over {
			return
		}
		pauseFor(ctx.Done(), readAgain)
	}
}
