package cluster

import (
	"context"
	"fmt"
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

// dialPeer connects to m, and asks nothing yet.
func (r *Router) dialPeer(m Member) (*peer, error) {
	p := &peer{member: m}
	for range lanesPerPeer() {
		conn, err := r.dial(m.Address)
		if err != nil {
			p.closeConns()
			return nil, fmt.Errorf("dial peer %s at %s: %w", m.ID, m.Address, err)
		}
		p.lanes = append(p.lanes, newLane(conn, r.attempt))
	}
	return p, nil
}

// start makes p ready to be asked. The caller holds r.mu.
func (r *Router) start(p *peer) {
	p.metrics = r.metrics.peer(p)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(r.stopped)
	for _, l := range p.lanes {
		l.frames = p.metrics.frames
		r.running.Go(func() {
			l.run(ctx)
			_ = l.conn.Close() // only ever says that it was closed before
		})
	}
}

func (p *peer) closeConns() {
	for _, l := range p.lanes {
		_ = l.conn.Close()
	}
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
