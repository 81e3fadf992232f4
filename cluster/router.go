package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/ring"
)

// DefaultAttemptTimeout is the most that one request waits for its answer, unless
// configured otherwise.
const DefaultAttemptTimeout = 25 * time.Millisecond

// Router asks the owners of counters: the local shard, or the peer that has them,
// one hop away. It is safe for concurrent use; make it with NewRouter.
type Router struct {
	self    string // this node's id
	dial    Dialer
	attempt time.Duration
	tracer  trace.Tracer // nil if no check is traced
	busy    func() bool  // reports whether this node has too much to do
	metrics *routerMetrics
	log     *slog.Logger

	own ownReplicas
	hot *hotCounters // of others

	full  fullKeys
	table atomic.Pointer[routingTable]
	calls sync.Pool // of *ask, this router's own: channels belong to one synctest bubble

	losses  chan struct{} // full when a member has ceased to answer; has room for one
	stop    context.CancelFunc
	stopped context.Context // ends with Close; what the peers' goroutines live by
	running sync.WaitGroup  // the peers' goroutines

	mu     sync.Mutex
	peers  map[Member]*peer // by Member.endpoint; guarded by mu
	closed bool             // guarded by mu
}

// endpoint is m whenever it was started: a restarted peer is found again by the
// same connection.
func (m Member) endpoint() Member { return Member{ID: m.ID, Address: m.Address} }

// View returns the view that the router routes by, nil before the first.
func (r *Router) View() *View {
	if t := r.table.Load(); t != nil {
		return t.view
	}
	return nil
}

// Reaches reports whether the member of that id answers this node. It is true
// for the node itself and false for nodes that are no members.
func (r *Router) Reaches(id string) bool {
	t := r.table.Load()
	if t == nil {
		return false
	}
	i, found := t.view.Index(id)
	return found && (t.peers[i] == nil || t.peers[i].reachable())
}

// Owner returns the id of the node that owns a counter, "" before the first view.
func (r *Router) Owner(key ring.Key) string {
	t := r.table.Load()
	if t == nil {
		return ""
	}
	return t.view.Members[t.view.Ring.Owner(key.Partition(t.view.Ring.Partitions()))].ID
}

// Standby returns the id of the node that has a copy of a counter, "" if there is none.
func (r *Router) Standby(key ring.Key) string {
	t := r.table.Load()
	if t == nil {
		return ""
	}
	standby := t.standby(key)
	if standby == noMember {
		return ""
	}
	return t.view.Members[standby].ID
}

// due returns until when a request that is asked now has time.
func (r *Router) due(ctx context.Context, now time.Time) time.Time {
	timeout := r.attempt
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Duration(attemptShare*float64(deadline.Sub(now))))
	}
	return now.Add(timeout)
}

// newCall returns a call that waits for its caller to end adding requests, nil if there is no time.
func (r *Router) newCall(ctx context.Context, now, due time.Time) *call {
	if !now.Before(due) || ctx.Err() != nil {
		return nil
	}
	a := r.calls.Get().(*call)
	a.sent, a.due, a.how, a.span = now, due, asOwner, nil
	a.again.Store(0)
	a.left.Store(1)
	return a
}

// wait ends the adding of requests, and waits until all is answered or given up. It reports
// whether the caller's ctx has ended first; then a.done is still to come.
func (r *Router) wait(ctx context.Context, a *call) (gone bool) {
	a.finish(1)
	select {
	case <-a.done:
		return false
	case <-ctx.Done():
		return true
	}
}

// Members returns the members of the view, and whether this node reaches each.
func (r *Router) Members() (members []Member, reachable []bool) {
	t := r.table.Load()
	if t == nil {
		return nil, nil
	}
	for i, p := range t.peers {
		if m := t.view.Members[i]; !m.Gone {
			members, reachable = append(members, m), append(reachable, p == nil || p.reachable())
		}
	}
	return members, reachable
}

// RouterConfig says how to build a Router. Every field but Locator and Busy is required.
type RouterConfig struct {
	// Self is this node's id.
	Self string
	// Local answers for what this node owns.
	Local Local
	// Locator knows where the counters are that Local does not have. Nil means that NewOwners sets it, before the first view.
	Locator Locator
	// DenialLeases are this node's.
	DenialLeases *GivenDenialLeases
	// Busy reports whether this node itself has too much to do, so that answers that it gets late say nothing of
	// the peers. Nil means that it never has.
	Busy func() bool
	// Tracer makes the spans of hops, and of what this node decides for others. Nil makes none.
	Tracer trace.Tracer
	// Dial connects to the others.
	Dial Dialer
	// AttemptTimeout is the most that a request to a peer waits for its answer.
	AttemptTimeout time.Duration
	// Logger is told when a peer ceases to answer, and when it answers again.
	Logger *slog.Logger
	// Metrics is where the router's metrics are registered.
	Metrics prometheus.Registerer
}

// peerOf returns the peer of that id, nil if that is this node or no member.
func (r *Router) peerOf(id string) *peer {
	if t := r.table.Load(); t != nil {
		if i, member := t.view.Index(id); member {
			return t.peers[i]
		}
	}
	return nil
}

// incarnationOf returns the latest incarnation of that id that has answered on a connection for checks, 0 if that is not known.
func (r *Router) incarnationOf(id string) (latest uint64) {
	if p := r.peerOf(id); p != nil {
		for _, c := range p.conns {
			latest = max(latest, c.incarnation.Load())
		}
	}
	return latest
}

// lostAt reports whether the member of that id answers this node, and if not, since when.
func (r *Router) lostAt(id string) (at time.Time, reaches bool) {
	if p := r.peerOf(id); p != nil {
		at = r.hot.started.Add(time.Duration(p.lost.Load()))
	}
	return at, r.Reaches(id)
}

// lostFor returns for how long the member of that id has not answered this node, 0 if it does, or is none, and whether it ever has.
func (r *Router) lostFor(id string) (d time.Duration, ever bool) {
	p := r.peerOf(id)
	if p == nil {
		return 0, false
	}
	lost := p.lost.Load()
	switch {
	case p.reachable() || p.answered.Load(): // it was lost just now, if at all
		return 0, true
	case lost == 0:
		return time.Since(p.made), false
	}
	return time.Since(r.hot.started) - time.Duration(lost), true
}
