package cluster

import (
	"context"

	"github.com/weirlimit/weir/cluster/view"
)

// isLeaving reports whether this node is a member that leaves.
func (o *Owners) isLeaving() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.view == nil {
		return false
	}
	for _, m := range o.view.Members {
		if m.Life == o.life() {
			return m.State == view.Leaving
		}
	}
	return false
}

// Depart ends that this node confirms decision leases of others: it is about to report that it has left, and may end before it learns of another view.
func (o *Owners) Depart() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.departed = true
}

// Flush leaves the partitions to their standbys. It gives up when ctx ends.
func (o *Owners) Flush(ctx context.Context) { o.node.Flush(ctx) }

// IsOver reports whether Flush was called.
func (o *Owners) IsOver() bool { return o.node.IsOver() }
