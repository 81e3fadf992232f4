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

	promises *Promises    // of this node as an owner
	hot      *hotCounters // of others

	table atomic.Pointer[table]
	asks  sync.Pool // of *ask, this router's own: timers and channels belong to one synctest bubble

	stop    context.CancelFunc
	stopped context.Context // ends with Close; what the peers' goroutines live by
	running sync.WaitGroup  // the peers' goroutines

	mu    sync.Mutex
	peers map[Member]*peer // by Member.endpoint; guarded by mu
}

// table is what the router routes by; immutable.
type table struct {
	view  *View
	peers []*peer // by member index; nil for this node itself
}

// SetView makes the router route by v. Peers that v does not name any more are
// left after a moment, so that questions under way get their answers.
func (r *Router) SetView(v *View) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &table{view: v, peers: make([]*peer, len(v.Members))}
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

// Owner returns the id of the node that owns a counter, "" before the first view.
func (r *Router) Owner(key ring.Key) string {
	t := r.table.Load()
	if t == nil {
		return ""
	}
	return t.view.Members[t.view.Ring.Owner(key.Partition(t.view.Ring.Partitions()))].ID
}

// Close stops talking to peers, after it has given back what they have lent, and waits
// until that is done. Decide goes on answering for what this node owns.
func (r *Router) Close() {
	r.hot.sweep(true)
	r.stop()
	r.running.Wait()
}

// Decide answers every group as shard.Decide does, wherever its counters live.
// A group that spans nodes is taken from all of them at once, and given back if one
// denies.
//
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
	case len(t.peers) == 1 && t.peers[0] == nil && !slices.ContainsFunc(groups, func(g shard.Group) bool { return frees(&g) }):
		r.promises.decide(r.local, groups)
		return
	case len(groups) == 1 && !frees(&groups[0]):
		if owner, one := t.owner(&groups[0]); one {
			if t.peers[owner] == nil {
				r.promises.decide(r.local, groups)
			} else {
				r.askOne(ctx, t, owner, &groups[0])
				r.settle(t, &groups[0])
			}
			return
		}
	}
	r.decideMany(ctx, t, groups)
}

// owner returns the index of the member that owns the counters of g, and whether
// it owns them all.
func (t *table) owner(g *shard.Group) (owner int, all bool) {
	if len(g.Takes) == 0 {
		return 0, false
	}
	partitions := t.view.Ring.Partitions()
	owner = t.view.Ring.Owner(g.Takes[0].Key.Partition(partitions))
	for i := 1; i < len(g.Takes); i++ {
		if t.view.Ring.Owner(g.Takes[i].Key.Partition(partitions)) != owner {
			return owner, false
		}
	}
	return owner, true
}

// lane returns the lane for g. All questions about one partition take one lane,
// so that the owner sees them in the order in which they were asked.
func (t *table) lane(owner int, g *shard.Group) *lane {
	l, _ := t.numbered(owner, g)
	return l
}

// numbered returns the lane for g, and a number that no other lane of the table has.
func (t *table) numbered(owner int, g *shard.Group) (l *lane, number int) {
	lanes := t.peers[owner].lanes
	i := int(g.Takes[0].Key.Partition(t.view.Ring.Partitions())) % len(lanes)
	return lanes[i], owner*maxLanes + i
}

// askOne answers g from what its owner has promised or lent, or else asks it.
func (r *Router) askOne(ctx context.Context, t *table, owner int, g *shard.Group) {
	l, m, now := t.lane(owner, g), &t.peers[owner].metrics, time.Now()
	c, from := r.hot.consult(g, l, now)
	if from == known {
		return
	}
	if from == renew {
		defer r.hot.learn(c, g, now)
	}
	a := r.newAsk(ctx, now)
	if a == nil {
		m.late.Inc()
		return
	}
	a.one[0], a.hot[0] = g, c
	first, err := l.enqueue(a, a.one[:], a.hot[:])
	if err != nil {
		m.refused(err, a.one[:])
	}
	if r.wait(ctx, a) {
		if err == nil {
			m.late.Add(float64(l.giveUp(a, first, time.Now())))
		}
		<-a.done
	}
	m.countAnswers(a.one[:])
	r.asks.Put(a)
}

// newAsk returns an ask that has the caller's token, nil if the caller's time is
// up already.
func (r *Router) newAsk(ctx context.Context, now time.Time) *ask {
	timeout := r.attempt
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Duration(attemptShare*float64(deadline.Sub(now))))
	}
	if timeout <= 0 || ctx.Err() != nil {
		return nil
	}
	a := r.asks.Get().(*ask)
	a.sent, a.due = now, now.Add(timeout)
	a.again.Store(0)
	a.left.Store(1)
	a.timer.Reset(timeout)
	return a
}

// wait gives back the caller's token and waits until all is answered. It reports
// whether time ran out first; then a.done is still to come.
func (r *Router) wait(ctx context.Context, a *ask) (late bool) {
	a.finish(1)
	select {
	case <-a.done:
	case <-a.timer.C:
		late = true
	case <-ctx.Done():
		late = true
	}
	a.timer.Stop()
	return late
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

		promises: c.Promises,
	}
	r.metrics = newRouterMetrics(c.Metrics, r)
	r.hot = newHotCounters(c.Promises, r.metrics)
	r.stopped, r.stop = context.WithCancel(context.Background())
	r.asks.New = func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return &ask{done: make(chan struct{}, 1), timer: t}
	}
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
