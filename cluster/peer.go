package cluster

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
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
