package ownership

import (
	"context"
	"time"

	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// flushEvery is how often it is looked whether all is flushed.
const flushEvery = 5 * time.Millisecond

// Flush ends that this node decides, for good, and returns once the standbys and learners that it reaches have all that it has: no view has given its
// partitions to others, and it is about to end. So they miss nothing. It gives up when ctx ends. A view that is on its way to etcd may name a learner as standby.
// Where no standby can decide, this node goes on until its end, without the right to: see standIn.
func (n *Node) Flush(ctx context.Context) {
	for x := range n.parts.each {
		x.wantAll()
	}
	pause(ctx, shard.Brief, nil) // then the standbys have short-lived counters as well
	n.End()
	for !n.parts.isFlushed() && ctx.Err() == nil {
		n.remind()
		pause(ctx, flushEvery, nil)
	}
}

// SendLast returns once the nodes that this one reaches have all that it has: standbys and learners what was posted to it since Flush, next owners its final
// states, and owners, or else standbys, what it has granted from its copies. It is over, gets nothing any more, and is about to end. It gives up when ctx ends:
// an owner that waits for predecessors adds grants without answering for them.
func (n *Node) SendLast(ctx context.Context) {
	for x := range n.parts.each {
		x.wantAll()
	}
	for n.isRunning() && !(n.isPosted() && n.parts.isFlushed()) && ctx.Err() == nil {
		n.remind()
		pause(ctx, flushEvery, nil)
	}
}

// isRunning reports whether Run has begun, and is not to end.
func (n *Node) isRunning() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.ctx != nil && n.ctx.Err() == nil
}

// isPosted reports whether the nodes that are to have what this one has granted from copies have it, as far as it reaches them.
func (n *Node) isPosted() bool {
	if !n.hasGranted() {
		return true
	}
	for x := range n.parts.each {
		if x.owesSomeone() {
			return false
		}
	}
	return true
}

// owesSomeone reports whether a node that is reached is to have deltas of a partition that it is not known to have. x.mu is held.
func (x *partition) owesSomeone() bool {
	for _, l := range []view.Life{x.replica.Claim.Owner, x.replica.Claim.Standby} {
		after, owes := x.owes(l, true)
		if !owes || x.node.peer(l) == nil || !x.node.Peers.Reaches(l) {
			continue
		}
		batches := x.deltas.own.batches
		if n := len(batches); n > 0 && batches[n-1].Number > after || x.node.Shard.HasGrants(x.p) {
			return true
		}
	}
	return false
}

// wantAll has the standby and the learner given short-lived counters too. x.mu is held.
func (x *partition) wantAll() {
	for f := range x.out.feeds {
		if x.out.feeds[f].to != (view.Life{}) {
			x.node.Shard.SetWants(x.p, shard.Follower(f), shard.Wants{Brief: true, Urgent: true})
		}
	}
}

// isFlushed reports whether all standbys, learners and next owners that this node reaches have all that it has.
func (ps partitions) isFlushed() bool {
	for x := range ps.each {
		if !x.isFlushed() {
			return false
		}
	}
	return true
}

// isFlushed reports whether the standby and the learner, or the next owner, have all that this node has, if it reaches them. x.mu is held.
func (x *partition) isFlushed() bool {
	for f := range x.out.feeds {
		d := &x.out.feeds[f]
		if x.node.peer(d.to) != nil && x.node.Peers.Reaches(d.to) && (d.unsent != nil || !d.rests || x.node.Shard.HasChanges(x.p, shard.Follower(f))) {
			return false
		}
	}
	return true
}
