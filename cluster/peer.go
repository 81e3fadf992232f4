package cluster

import (
	"context"
	"net"
	"runtime"
	"time"
)

// peer is another node, as this one asks it.
type peer struct {
	member  Member
	lanes   []*lane
	stop    context.CancelFunc
	metrics peerMetrics
}

// lanesPerPeer is how many connections go to one peer: one saturates about two
// cores of its owner.
func lanesPerPeer() int { return min(8, max(1, runtime.GOMAXPROCS(0)/2)) }

func (p *peer) reachable() bool {
	for _, l := range p.lanes {
		if !l.closed.Load() {
			return false
		}
	}
	return true
}

// startPeer keeps links to m. The caller holds r.mu.
func (r *Router) startPeer(m Member) *peer {
	p := &peer{member: m}
	p.metrics = r.metrics.peer(p)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(r.stopped)
	dial := func(ctx context.Context) (net.Conn, error) { return r.dial(ctx, m.Address) }
	for range lanesPerPeer() {
		l := newLane(dial, r.attempt, p.metrics.frames)
		p.lanes = append(p.lanes, l)
		r.running.Go(func() { l.run(ctx) })
	}
	return p
}

// retire leaves p when the questions that are under way have had their time.
func (r *Router) retire(p *peer) {
	r.metrics.forget(p)
	r.running.Go(func() {
		grace := time.NewTimer(r.attempt + retireGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
		case <-r.stopped.Done():
		}
		p.stop()
	})
}
