package cluster

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

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
	r.metrics = newRouterMetrics(c.Metrics)
	c.Metrics.MustRegister(viewCollector{r})
	r.own = ownReplicas{router: r, local: c.Local, locator: c.Locator, denialLeases: c.DenialLeases}
	c.DenialLeases.own = &r.own
	r.full.started = time.Now()
	r.hot = newHotCounters(c.DenialLeases, r.metrics)
	r.stopped, r.stop = context.WithCancel(context.Background())
	r.calls.New = func() any { return &call{done: make(chan struct{}, 1)} }
	return r
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

// Probe returns once this node has looked at a counter as it would for a check of its own, and never if it is stuck. No
// other node is asked, and nothing is counted: the counter, of any limit, does not exist, and is not made.
func (r *Router) Probe(limit algorithms.Limit) {
	key := ring.Key{Hi: 1, Lo: 1}
	// Ungated: it is no matter here whether this node owns the counter.
	_ = r.own.denialLeases.decide(r.own.local, []shard.Group{{Peek: true, Ungated: true, Takes: []shard.Take{{Key: key, Limit: limit, Cost: 1}}}})
}

// newTable returns the table for v. A partition whose owner is another one than in old is
// asked for where it was, as long as that is a member: it decides until it has adopted v as well, and redirects then.
func (r *Router) newTable(v *View, old *routingTable) *routingTable {
	t := &routingTable{full: &r.full, id: r.self, locator: r.own.locator, started: r.hot.started, view: v, peers: make([]*peer, len(v.Members)), self: -1}
	for i, m := range v.Members {
		t.marks = append(t.marks, markOf(m.ID))
		if m.ID == r.self {
			t.self = i
		}
	}
	t.began = time.Now()
	t.routes = make([]atomic.Uint32, v.Ring.Partitions())
	t.vacant = make([]atomic.Int64, v.Ring.Partitions())
	var now []int // index in v of old's members, -1 if it is none any more
	if old != nil && len(old.routes) == len(t.routes) {
		for _, mark := range old.marks {
			now = append(now, slices.Index(t.marks, mark))
		}
	}
	for p := range t.routes {
		to := v.Ring.Owner(uint32(p))
		if now != nil {
			if there := now[old.routes[p].Load()]; there >= 0 {
				to = there
			}
		}
		t.routes[p].Store(uint32(to))
	}
	return t
}

// newPeer returns m as a peer that is asked nothing yet.
func (r *Router) newPeer(m Member) *peer {
	p := &peer{member: m, made: time.Now()}
	dial := func(ctx context.Context) (net.Conn, error) {
		return r.dial(ctx, Member{ID: m.ID, Address: m.Address, Incarnation: p.incarnation.Load()})
	}
	for range connsPerPeer() {
		p.conns = append(p.conns, newConn(dial, r.attempt))
	}
	return p
}

// start makes p ready to be asked. The caller holds r.mu.
func (r *Router) start(p *peer) {
	p.metrics = r.metrics.peer(p.member.ID)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(r.stopped)
	notice := func() {
		answers := p.reachable()
		if p.answered.Swap(answers) == answers {
			return
		}
		if !answers {
			p.lost.Store(int64(time.Since(r.hot.started)))
			fill(r.losses)
		}
		if ctx.Err() == nil {
			r.tell(p.member, answers)
		}
	}
	for _, c := range p.conns {
		c.frames, c.notice, c.redirected = p.metrics.frames, notice, r.movedFrom(p)
		c.late = func(n int) { p.metrics.late.Add(float64(n)) }
		c.undone = func(lost bool) {
			r.metrics.undone.Inc()
			if lost {
				r.metrics.lostReturns.Inc()
			}
		}
		c.busyHere = r.busy
		c.uncertain = func(n int) { r.metrics.uncertain.Add(float64(n)) }
		r.running.Go(func() { c.run(ctx) })
	}
}

// movedFrom returns what the conns to p are to do about counters that p does not have.
func (r *Router) movedFrom(p *peer) redirectFunc {
	return func(k ring.Key, mark uint64) (elsewhere bool) {
		t := r.table.Load()
		from := slices.Index(t.peers, p)
		return from < 0 || t.redirect(k, from, mark)
	}
}

// retire leaves p when the requests that are under way have had their time.
func (r *Router) retire(p *peer) {
	r.metrics.forget(p.member.ID)
	r.running.Go(func() {
		pauseFor(r.stopped.Done(), r.attempt+retireGrace)
		p.stop()
	})
}

// tell logs that a peer has begun or ceased to answer.
func (r *Router) tell(m Member, answers bool) {
	if answers {
		r.log.Info("peer answers", "peer", m.ID, "address", m.Address)
	} else {
		r.log.Warn("peer does not answer", "peer", m.ID, "address", m.Address)
	}
}

// greet has the member of that id asked again by checks, which was suspended and has just said by
// itself that it is back.
func (r *Router) greet(id string) {
	if p := r.peerOf(id); p != nil {
		p.spared.Store(0)
		for _, c := range p.conns {
			c.greet(time.Now())
		}
	}
}

// hears records that the member of that id has called this node: it is there, and its connections can be made again.
func (r *Router) hears(id string) {
	if p := r.peerOf(id); p != nil {
		for _, c := range p.conns {
			c.hears()
		}
	}
}
