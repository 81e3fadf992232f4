package ownership

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// shared is what all partitions of a node use.
type shared struct {
	Config
	decisionLease
	peerTable
	session atomic.Uint64 // of the last feed that was begun
	batches atomic.Int64  // own deltas in all partitions
	waiting atomic.Int64  // partitions whose replica is Waiting
	unasked chan struct{} // full when a partition is unasked; has room for one
	// expected are the members at the time of the snapshot that this node has restored. It is set before Adopt and Run.
	expected []view.Life
	// joined is when this node has first adopted a view of which it is a member, in Unix nanoseconds.
	joined atomic.Int64
	// restored is the highest term of what that snapshot has. It is set before Adopt and Run.
	restored uint64
	// reportDue says that what a replica reports has changed since Node.report was made. It is set after the change.
	reportDue atomic.Bool
}

// partition is a node's replica of one partition, with what drives it. mu is held over locks of the shard, and never over a call. It guards
// all that follows it, except out.standby.
type partition struct {
	node    *shared
	p       uint32 // its number: it is node.parts[p], for the Node that node is a part of
	mu      sync.Mutex
	replica replica.Replica // replica.Self is the node's life
	out     sending
	in      receiving
	deltas  deltas
	place   place
}

// partitions are all partitions of a node, by number.
type partitions []partition

// each yields all partitions, each with its lock held.
func (ps partitions) each(yield func(*partition) bool) {
	for p := range ps {
		x := &ps[p]
		x.mu.Lock()
		goesOn := yield(x)
		x.mu.Unlock()
		if !goesOn {
			return
		}
	}
}

// report returns what the node reports of a partition.
func (ps partitions) report(p int) (settled, complete bool) {
	x := &ps[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica.Report()
}

// place is where the newest view and its plan want the partition.
type place struct {
	learner view.Life // whom the owner feeds apart from the standby; or the zero value
	target  view.Life // the node that is to become standby or owner next, once its copy is complete; or the zero value
	owner   bool      // whether that is the plan's owner
	// standsIn says that this node grants from what it has, as the lives that would decide have ended: see standIn.
	standsIn bool
}

func placeOf(v *view.View, plan view.Plan, p int) (at place) {
	at.learner = v.Learner(p, plan[p])
	part := &v.Partitions[p]
	wanted := plan[p].Standby
	if at.owner = part.Owner.ID != plan[p].Owner; at.owner {
		wanted = plan[p].Owner
	}
	for _, l := range []view.Life{part.Standby, at.learner} {
		if l.ID == wanted && wanted != "" && (at.owner || l != part.Standby) {
			at.target = l
		}
	}
	return at
}

// trimBatches forgets own deltas below a number: the copy has them, or the owner and its standby.
func (x *partition) trimBatches(below uint64) {
	had := len(x.deltas.own.batches)
	x.deltas.own.batches = slices.DeleteFunc(x.deltas.own.batches, func(b Batch) bool { return b.Number < below })
	if len(x.deltas.own.batches) == had {
		return
	}
	x.node.Shard.Underway(x.p, x.deltas.grants())
	x.node.batches.Add(int64(len(x.deltas.own.batches) - had))
}

// trimShared forgets deltas of other nodes: the copy has them, or counts without them.
func (x *partition) trimShared(known func(b *sharedBatch) bool) {
	had := len(x.deltas.shared)
	x.deltas.shared = slices.DeleteFunc(x.deltas.shared, func(b sharedBatch) bool { return known(&b) })
	if len(x.deltas.shared) < had {
		x.node.Shard.Underway(x.p, x.deltas.grants())
	}
}
