package ownership

import (
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// It takes seconds until a view replaces lives that have ended, and as long as etcd is away no view does. Five kinds of nodes stand in for them: they grant from
// what they have, as a standby does while the owner is not reached.
//
//	the learner with a complete copy       the owner has said farewell, and the view names no standby
//	an owner without the decision lease    the life of its standby has ended, so that no other node has a copy
//	an owner that is about to end          the view names no standby, or that has ended or is not reached
//	a later life of a member               its former life owns the partition, and the standby, or the learner in its place, has ended or is not reached; or that
//	                                       was the standby, and the owner has ended or is not reached, and no later life of it is there
//	another member                         owner, standby and predecessors are gone: see view.View.LastResort

// StandInAfter is how long after its start a node takes others that it does not reach for ended: until then it may not have connected to them.
const StandInAfter = 3 * time.Second

// former is the life of this node's id that a view names, if that is not this one, and whether there is one. n.mu is held.
func (n *Node) former() (l view.Life, ok bool) {
	if n.view == nil || n.view.IsMember(n.lease.Self) {
		return l, false
	}
	return n.view.Current(n.lease.Self.ID)
}

// standIn finds out where this node stands in for lives that have ended.
func (n *Node) standIn() {
	n.mu.Lock()
	former, isLater := n.former()
	isLapsed := n.view != nil && n.lease.Role == replica.IsMember && !n.isValid()
	n.mu.Unlock()
	hasHeard := isLater && len(n.Reports()) > 0 || time.Since(n.started) >= StandInAfter // before StandIns, which may follow from what was heard
	standIns := n.StandIns()
	if !isLater && !isLapsed && !n.standsIn && standIns == nil {
		return
	}
	n.standsIn = false
	for x := range n.parts.each {
		in := false
		switch r := &x.replica; {
		case standIns != nil && standIns[x.p] != view.Life{}:
			in = standIns[x.p] == r.Self || isLater && former == r.Claim.Owner && n.isOut(standIns[x.p])
		case isLater:
			in = x.standsInFor(former, hasHeard)
		case isLapsed && r.State == replica.Deciding:
			in = n.standsInForStandby(r.Claim.Standby)
		}
		if in != x.place.standsIn {
			x.place.standsIn = in
			x.step(replica.Event{Kind: replica.StandIn, On: in}, nil)
		}
		n.standsIn = n.standsIn || in
	}
}

// standsInFor reports whether this node stands in for its former life in a partition. Where the view names no standby, the learner may do so, as far as others
// were heard. x.mu is held.
func (x *partition) standsInFor(former view.Life, hasHeard bool) bool {
	n, r := x.node, &x.replica
	switch former {
	case r.Claim.Owner:
		if r.Claim.Standby == (view.Life{}) {
			return hasHeard || x.place.learner == view.Life{}
		}
		return n.isOut(r.Claim.Standby)
	case r.Claim.Standby:
		return n.isOut(r.Claim.Owner) && !n.Peers.ReachesID(r.Claim.Owner.ID)
	}
	return false
}

// standsInForStandby reports whether this node, which owns a partition and has no decision lease, stands in for its standby.
func (n *shared) standsInForStandby(standby view.Life) bool {
	if n.isOver.Load() {
		return standby == view.Life{} || n.isOut(standby)
	}
	return standby != view.Life{} && n.Peers.HasEnded(standby)
}

// isOut reports whether a life has ended, or is not reached although it was before, or there was time to connect to it.
func (n *shared) isOut(l view.Life) bool {
	c := n.peer(l)
	switch reached := n.Peers.Reaches(l); {
	case n.Peers.HasEnded(l):
		return true
	case reached && c != nil:
		c.wasReached.Store(true)
		return false
	case reached:
		return false
	}
	return c != nil && c.wasReached.Load() || time.Since(n.started) >= StandInAfter
}
