package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// DefaultAttemptTimeout is the most that one question waits for its answer, unless
// configured otherwise.
const DefaultAttemptTimeout = 25 * time.Millisecond

const (
	attemptShare = 0.4                    // the most of the caller's own time that one question waits
	retireGrace  = 250 * time.Millisecond // what peers that are left get to finish, beyond an attempt
	closeGrace   = 20 * time.Millisecond  // what peers get to answer when this node ends
)

// Local answers from this node's counters. *shard.Shard is one.
type Local interface {
	Decide(groups []shard.Group)
	Return(takes []shard.Take)
}

// Router asks the owners of counters: the local shard, or the peer that has them,
// one hop away. It is safe for concurrent use; make it with NewRouter.
type Router struct {
	self    string // this node's id
	local   Local
	dial    Dialer
	attempt time.Duration
	metrics *routerMetrics
	log     *slog.Logger

	holders  Holders      // nil if this node knows of none
	promises *Promises    // of this node as an owner
	hot      *hotCounters // of others

	table atomic.Pointer[table]
	asks  sync.Pool // of *ask, this router's own: channels belong to one synctest bubble

	stop    context.CancelFunc
	stopped context.Context // ends with Close; what the peers' goroutines live by
	running sync.WaitGroup  // the peers' goroutines

	mu     sync.Mutex
	peers  map[Member]*peer // by Member.endpoint; guarded by mu
	closed bool             // guarded by mu
}

// table is what the router routes by; immutable, but for the routes.
type table struct {
	view   *View
	self   int             // this node's member index, -1 if it is none
	peers  []*peer         // by member index; nil for this node itself
	marks  []uint64        // by member index; of their ids
	routes []atomic.Uint32 // by partition: the index of the member that is asked for it
	began  time.Time
	vacant []atomic.Int64 // by partition: until when, since began, its owner is not believed to have it
}

// SetView makes the router route by v. Peers that v does not name any more are
// left after a moment, so that questions under way get their answers. After Close it does nothing.
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

// lostAt reports whether the member of that id answers this node, and if not, since when.
func (r *Router) lostAt(id string) (at time.Time, reaches bool) {
	t := r.table.Load()
	if t == nil {
		return at, false
	}
	if i, found := t.view.Index(id); found && t.peers[i] != nil {
		at = r.hot.started.Add(time.Duration(t.peers[i].lost.Load()))
	}
	return at, r.Reaches(id)
}

// Owner returns the id of the node that owns a counter, "" before the first view.
func (r *Router) Owner(key ring.Key) string {
	t := r.table.Load()
	if t == nil {
		return ""
	}
	return t.view.Members[t.view.Ring.Owner(key.Partition(t.view.Ring.Partitions()))].ID
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
		for _, l := range p.lanes {
			if !l.rests() {
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
// What has moved is asked for where it is, and what its owner does not answer of its
// standby: its takes are from Standby if that has asked the owner, or Provisional.
// To what nobody answers in time the take's policy applies: it stays Unanswered and
// counts as allowed or as denied, or this node decides it by its share of the limit.
// A take that would wait for too long behind others is Overloaded at once, and denies.
func (r *Router) Decide(ctx context.Context, groups []shard.Group) {
	t := r.table.Load()
	if t == nil {
		for i := range groups {
			r.settle(nil, &groups[i])
		}
		return
	}
	switch {
	case len(t.peers) == 1 && t.peers[0] == nil && !anyFrees(groups):
		r.decideHere(groups, time.Time{})
		if anyUndecided(groups) {
			r.decideRest(ctx, t, 0, groups, time.Time{})
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
func (r *Router) decideOne(ctx context.Context, t *table, to int, groups []shard.Group) {
	var due time.Time
	g := &groups[0]
	if t.peers[to] == nil {
		r.decideHere(groups, time.Time{})
	} else {
		due = r.askOne(ctx, t, to, g)
	}
	if undecided(g) {
		r.decideRest(ctx, t, to, groups, due)
	} else if t.peers[to] != nil {
		r.settle(t, g)
	}
}

// routeOf returns the index of the member that is asked for the counters of g, and
// whether it is asked for them all.
func (t *table) routeOf(g *shard.Group) (to int, all bool) {
	if len(g.Takes) == 0 {
		return 0, false
	}
	to = t.route(g.Takes[0].Key)
	for i := 1; i < len(g.Takes); i++ {
		if t.route(g.Takes[i].Key) != to {
			return to, false
		}
	}
	return to, true
}

// lane returns the lane to a member for k, and for all groups that begin with it. All
// questions about one partition take one lane, so that whoever has it sees them in the
// order in which they were asked; but for what is asked of standbys.
func (t *table) lane(to int, k ring.Key) *lane {
	l, _ := t.numbered(to, k, false)
	return l
}

// numbered returns the lane to a member for k, and a number that no other lane of the
// table has.
func (t *table) numbered(to int, k ring.Key, standby bool) (l *lane, number int) {
	lanes := t.peers[to].lanes
	i := len(lanes) - 1
	if !standby || !lanes[i].closed.Load() { // it may come up, or break, some moments before or after the others
		i = int(t.partition(k)) % i
	}
	return lanes[i], to*maxLanes + i
}

// askOne answers g from what its owner has promised or lent, or else asks the member
// that has it. It returns until when the question has time.
func (r *Router) askOne(ctx context.Context, t *table, to int, g *shard.Group) (due time.Time) {
	l, m, now := t.lane(to, g.Takes[0].Key), &t.peers[to].metrics, time.Now()
	c, from := r.hot.consult(g, l, now)
	if from == known {
		return now
	}
	if from == renew {
		defer r.hot.learn(c, g, now)
	}
	due = r.due(ctx, now)
	a := r.newAsk(ctx, now, due)
	if a == nil {
		m.late.Inc()
		return due
	}
	a.one[0], a.hot[0] = g, c
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
	r.asks.Put(a)
	return due
}

// due returns until when a question that is asked now has time.
func (r *Router) due(ctx context.Context, now time.Time) time.Time {
	timeout := r.attempt
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Duration(attemptShare*float64(deadline.Sub(now))))
	}
	return now.Add(timeout)
}

// newAsk returns an ask that has the caller's token, nil if there is no time.
func (r *Router) newAsk(ctx context.Context, now, due time.Time) *ask {
	if !now.Before(due) || ctx.Err() != nil {
		return nil
	}
	a := r.asks.Get().(*ask)
	a.sent, a.due, a.how = now, due, asOwner
	a.again.Store(0)
	a.left.Store(1)
	return a
}

// wait gives back the caller's token and waits until all is answered or given up. It reports
// whether the caller's ctx has ended first; then a.done is still to come.
func (r *Router) wait(ctx context.Context, a *ask) (gone bool) {
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
		local:   c.Local,
		dial:    c.Dial,
		attempt: c.AttemptTimeout,
		log:     c.Logger,
		peers:   make(map[Member]*peer),

		holders:  c.Holders,
		promises: c.Promises,
	}
	r.metrics = newRouterMetrics(c.Metrics, r)
	r.hot = newHotCounters(c.Promises, r.metrics)
	r.stopped, r.stop = context.WithCancel(context.Background())
	r.asks.New = func() any { return &ask{done: make(chan struct{}, 1)} }
	return r
}

// Members returns the members of the view, and whether this node reaches each.
func (r *Router) Members() (members []Member, reachable []bool) {
	t := r.table.Load()
	if t == nil {
		return nil, nil
	}
	reachable = make([]bool, len(t.peers))
	for i, p := range t.peers {
		reachable[i] = p == nil || p.reachable()
	}
	return slices.Clone(t.view.Members), reachable
}
