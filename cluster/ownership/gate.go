package ownership

import "github.com/weirlimit/weir/cluster/replica"

// setGate has the shard decide, or grant from its copy, as the state of the replica allows. was is the state before.
func (x *partition) setGate(was replica.State) {
	r := &x.replica
	switch {
	case r.State == replica.Deciding && (was != replica.Deciding || x.node.Shard.IsSealed(x.p)):
		x.node.Observer.Opened(x.p)
		x.in.feed.partial, x.in.feed.apart = false, false // what it has is what counts now
		x.node.Shard.Unseal(x.p)
		x.node.Shard.Withhold(x.p, true) // without the decision lease it decides nothing
		return
	case r.State == replica.Deciding:
		x.node.Shard.Withhold(x.p, !x.place.standsIn)
		return
	case was == replica.Deciding:
		x.node.Shard.Seal(x.p)
	}
	switch {
	case !r.IsGrantable():
		x.deltas.asked = notGrantable
	case x.deltas.asked == notGrantable:
		x.deltas.asked = unasked
		fill(x.node.unasked)
	}
	x.node.Shard.Withhold(x.p, !x.isGrantable())
}

// isGrantable reports whether this node may grant from its copy while the owner, or a predecessor, is not reached. x.mu is held.
func (x *partition) isGrantable() bool {
	if x.replica.State == replica.Deciding {
		return x.place.standsIn
	}
	return x.deltas.asked == wasAsked && x.replica.IsGrantable() && (x.replica.Version.Term > 0 || !x.salvages())
}

// mustHear reports whether this node is the owner, and asks the members before it decides from its copy. x.mu is held.
func (x *partition) mustHear() bool {
	r := &x.replica
	return r.State == replica.Waiting && x.deltas.heard != r.Claim.Term
}
