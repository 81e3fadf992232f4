package cluster

import (
	"context"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/cluster/ownership"
	"github.com/weirlimit/weir/cluster/peerv1"
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

// life returns this life of the node.
func (o *Owners) life() view.Life {
	return view.Life{ID: o.Self.ID, Incarnation: o.Greeter.Self().Incarnation}
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

// Farewells implements Electorate: it returns the lives that have said farewell, of those that the view names.
func (o *Owners) Farewells() []view.Life { return *o.knownMembers.farewells.Load() }

// IsOver reports whether this node has ceased to decide, for good: Flush or SayFarewell was called.
func (o *Owners) IsOver() bool { return o.node.IsOver() }

// caller says who calls c.
func (o *Owners) caller(c *otherMember) *peerv1.Caller {
	return &peerv1.Caller{
		Version: connVersion, Cluster: o.Greeter.Self().Cluster, Id: o.Self.ID, Address: o.Self.Address, Incarnation: o.life().Incarnation,
		To: c.member.Incarnation, ToId: c.member.ID, View: o.number(),
	}
}
