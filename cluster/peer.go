package cluster

import (
	"context"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/ring"
)

// peer is another node, as this one asks it.
type peer struct {
	member  Member
	conns   []*conn // the last one for what it is asked as a standby
	stop    context.CancelFunc
	metrics peerMetrics

	incarnation atomic.Uint64 // by the newest view that names it

	answered atomic.Bool  // what was logged last
	lost     atomic.Int64 // when it was last found not to answer any more; since hotCounters.started
	made     time.Time    // when this node heard of it
	spared   atomic.Int64 // until when nothing is relayed to it, because it was late; since hotCounters.started
}

const maxConns = 9 // to one peer

// connsPerPeer is how many connections go to one peer: one saturates about two
// cores of its owner. One more is for what it is asked as a standby. It asks others then, and what
// waits behind that must not be what others wait for: two nodes that stand by for each other would
// wait for each other.
func connsPerPeer() int { return min(maxConns, max(1, runtime.GOMAXPROCS(0)/2)+1) }

func (p *peer) reachable() bool {
	for _, c := range p.conns {
		if !c.healthy.Load() {
			return false
		}
	}
	return true
}

// saidSomethingSince reports whether p has answered anything since then.
func (p *peer) saidSomethingSince(at time.Time) bool {
	return slices.ContainsFunc(p.conns, func(c *conn) bool { return c.heardSince(at) })
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
	p.metrics = r.metrics.peer(p)
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

// tell logs that a peer has begun or ceased to answer.
func (r *Router) tell(m Member, answers bool) {
	if answers {
		r.log.Info("peer answers", "peer", m.ID, "address", m.Address)
	} else {
		r.log.Warn("peer does not answer", "peer", m.ID, "address", m.Address)
	}
}

// retire leaves p when the requests that are under way have had their time.
func (r *Router) retire(p *peer) {
	r.metrics.forget(p)
	r.running.Go(func() {
		pauseFor(r.stopped.Done(), r.attempt+retireGrace)
		p.stop()
	})
}
