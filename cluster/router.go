package cluster

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// DefaultAttemptTimeout is the most that one request waits for its answer, unless
// configured otherwise.
const DefaultAttemptTimeout = 25 * time.Millisecond

const (
	attemptShare = 0.4                    // the most of the caller's own time that one request waits
	retireGrace  = 250 * time.Millisecond // what peers that are left get to finish, beyond an attempt
	closeGrace   = 20 * time.Millisecond  // what peers get to answer when this node ends
)

// Local answers from this node's counters. *shard.Shard is one.
type Local interface {
	Decide(groups []shard.Group)
	Return(takes []shard.Take)
	Keep(takes []shard.Take)
}

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

// SetView makes the router route by v. Peers that v does not name any more are
// left after a moment, so that requests under way get their answers. After Close it does nothing.
func (r *Router) SetView(v *View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	t := r.newTable(v, r.table.Load())
	named := make(map[Member]*peer, len(v.Members))
	for i, m := range v.Members {
		if m.ID == r.self {
			continue
		}
		p := r.peers[m.endpoint()]
		if p == nil {
			p = r.newPeer(m.endpoint())
		}
		p.incarnation.Store(m.Incarnation)
		for _, c := range p.conns {
			c.name(m.Incarnation)
		}
		t.peers[i], named[m.endpoint()] = p, p
	}
	old := r.peers
	r.peers = named
	for m, p := range old { // first: a node at a new address has the same metrics
		if named[m] == nil {
			r.retire(p)
		}
	}
	for m, p := range named {
		if old[m] == nil {
			r.start(p)
		}
	}
	r.table.Store(t)
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

// Close stops talking to peers, after it has given back what they have lent and those that
// answer have taken that, for which it waits closeGrace at most. Decide goes on answering for
// what this node owns.
func (r *Router) Close() {
	r.hot.sweep(true)
	r.awaitRest()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.stop()
	r.running.Wait()
}

// awaitRest waits until the peers have answered all that this node has sent them, or had queued
// behind that; those that do not answer get closeGrace.
func (r *Router) awaitRest() {
	over := time.NewTimer(closeGrace)
	defer over.Stop()
	look := time.NewTicker(closeGrace / 20)
	defer look.Stop()
	for !r.rests() {
		select {
		case <-over.C:
			return
		case <-look.C:
		}
	}
}

// rests reports whether nothing is under way to a peer.
func (r *Router) rests() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.peers {
		for _, c := range p.conns {
			if !c.rests() {
				return false
			}
		}
	}
	return true
}

// Decide answers every group as shard.Decide does, wherever its counters live.
// A group that spans nodes is taken from all of them at once, and given back if one
// denies.
//
// Takes whose counter is on another node than expected are sent there. Takes that the owner does not
// answer are sent to its standby: their source is Standby if it has asked the owner, or else
// Provisional. If no node answers in time, the failure policy of the take applies: it stays
// Undecided and counts as allowed or as denied, or this node decides it by its share of the limit.
// A take that would wait for too long behind others is Overloaded at once, and denies.
//
// What is denied only because of takes that other groups may give back is asked again until they are settled; see
// contention.go.
func (r *Router) Decide(ctx context.Context, groups []shard.Group) {
	r.decide(ctx, groups)
	if i := firstContended(groups); i < len(groups) {
		r.decideContended(ctx, groups[i:])
	}
}

func (r *Router) decide(ctx context.Context, groups []shard.Group) {
	t := r.table.Load()
	if t == nil {
		for i := range groups {
			r.applyPolicies(nil, &groups[i])
		}
		return
	}
	switch {
	case len(t.peers) == 1 && t.peers[0] == nil && !anyFrees(groups):
		r.own.decideHere(groups, time.Time{})
		if anyUndecided(groups) {
			r.decideRest(ctx, t, 0, groups, time.Time{}, nil)
		}
		return
	case len(groups) == 1 && !frees(&groups[0]):
		if to, one := t.routeOf(&groups[0]); one {
			r.decideOne(ctx, t, to, groups)
			return
		}
	}
	r.decideMany(ctx, t, groups)
}

func anyFrees(groups []shard.Group) bool {
	for i := range groups {
		if frees(&groups[i]) {
			return true
		}
	}
	return false
}

// decideOne answers the one of groups, for whose counters that member is asked.
func (r *Router) decideOne(ctx context.Context, t *routingTable, to int, groups []shard.Group) {
	var due time.Time
	var hop trace.Span
	g := &groups[0]
	if t.peers[to] == nil {
		r.own.decideHere(groups, time.Time{})
	} else {
		due, hop = r.forwardOne(ctx, t, to, g)
	}
	if undecided(g) {
		r.decideRest(ctx, t, to, groups, due, hop)
	} else if t.peers[to] != nil {
		r.applyPolicies(t, g)
	}
}

// forwardOne answers g from what its owner has leased, or else asks the member
// that has it. It returns until when the request has time, and its span, which is nil unless it is traced.
func (r *Router) forwardOne(ctx context.Context, t *routingTable, to int, g *shard.Group) (due time.Time, hop trace.Span) {
	l, m, now := t.conn(to, g.Takes[0].Key), &t.peers[to].metrics, time.Now()
	c, answered := r.hot.consult(g, l, now)
	if answered {
		return now, nil
	}
	defer r.hot.learn(c, g, l, now)
	due = r.due(ctx, now)
	a := r.newCall(ctx, now, due)
	if a == nil {
		m.late.Inc()
		return due, nil
	}
	a.one[0], a.hot[0] = g, c
	hop = r.startHop(ctx, t.peers[to].member, asOwner)
	a.span = contextOf(hop)
	first, err := l.enqueue(a, a.one[:], a.hot[:])
	if err != nil {
		m.refused(err, a.one[:])
	}
	if r.wait(ctx, a) {
		if err == nil {
			l.giveUp(a, first, time.Now())
		}
		<-a.done
	}
	m.countAnswers(a.one[:])
	endHop(hop, a.one[:])
	r.calls.Put(a)
	return due, hop
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

// NewRouter returns the router of the node self. It has no view and answers
// nothing until SetView.
func NewRouter(c RouterConfig) *Router {
	r := &Router{
		self:    c.Self,
		dial:    c.Dial,
		attempt: c.AttemptTimeout,
		log:     c.Logger,
		peers:   make(map[Member]*peer),
		losses:  make(chan struct{}, 1),

		tracer: c.Tracer,
		busy:   c.Busy,
	}
	if r.busy == nil {
		r.busy = func() bool { return false }
	}
	r.metrics = newRouterMetrics(c.Metrics, r)
	r.own = ownReplicas{router: r, local: c.Local, locator: c.Locator, denialLeases: c.DenialLeases}
	c.DenialLeases.own = &r.own
	r.full.started = time.Now()
	r.hot = newHotCounters(c.DenialLeases, r.metrics)
	r.stopped, r.stop = context.WithCancel(context.Background())
	r.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	return r
}

// Probe returns once this node has looked at a counter as it would for a check of its own, and never if it is stuck. No
// other node is asked, and nothing is counted: the counter, of any limit, does not exist, and is not made.
func (r *Router) Probe(limit algorithms.Limit) {
	key := ring.Key{Hi: 1, Lo: 1}
	// Ungated: it is no matter here whether this node owns the counter.
	_ = r.own.denialLeases.decide(r.own.local, []shard.Group{{Peek: true, Ungated: true, Takes: []shard.Take{{Key: key, Limit: limit, Cost: 1}}}})
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
