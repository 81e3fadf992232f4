package ownership

import (
	"context"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// flushEvery is how often it is looked whether all is flushed.
const flushEvery = 5 * time.Millisecond

// Flush ends that this node decides, for good, and returns once the standbys and learners that it reaches have all that it has: no view has given its
// partitions to others, and it is about to end. So they miss nothing. It gives up when ctx ends. A view that is on its way to etcd may name a learner as standby.
func (n *Node) Flush(ctx context.Context) {
	n.wantAll()
	pause(ctx, shard.Brief) // then the standbys have short-lived counters as well
	n.mu.Lock()
	n.isOver.Store(true)
	n.setLease()
	n.mu.Unlock()
	for !n.isFlushed() && ctx.Err() == nil {
		n.remind()
		pause(ctx, flushEvery)
	}
}

// IsOver reports whether this node has ceased to decide, for good.
func (n *Node) IsOver() bool { return n.isOver.Load() }

// wantAll has the standbys and learners given short-lived counters too.
func (n *Node) wantAll() {
	for p := range n.parts {
		x := &n.parts[p]
		x.mu.Lock()
		for f := range x.feeds {
			if x.feeds[f].to != (view.Life{}) {
				n.Shard.SetWants(uint32(p), shard.Follower(f), shard.Wants{Brief: true, Urgent: true})
			}
		}
		x.mu.Unlock()
	}
}

// isFlushed reports whether all standbys and learners that this node reaches have all that it has.
func (n *Node) isFlushed() bool {
	for p := range n.parts {
		if !n.isPartFlushed(uint32(p)) {
			return false
		}
	}
	return true
}

func (n *Node) isPartFlushed(p uint32) bool {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.replica.State != replica.Deciding {
		return true
	}
	for f := range x.feeds {
		d := &x.feeds[f]
		if n.peer(d.to) != nil && n.Peers.Reaches(d.to) && (d.unsent != nil || !d.rests) {
			return false
		}
	}
	return true
}
