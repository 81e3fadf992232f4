// Package ownership drives a node's copies of partitions by what views say.
//
// A Node has a replica.Replica of each partition. It feeds standbys and learners, hands final states over, and posts what it has granted
// from copies. One goroutine serves each other node, and one looks at the clock. A partition's lock is never held over a call.
package ownership

import (
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Node drives the replicas of all partitions on one life of a node. It is safe for concurrent use.
type Node struct {
	shared
	parts    partitions
	standsIn bool          // in some partition; owned by watch
	lookSoon chan struct{} // full when watch is to look at once; has room for one

	// Guarded by mu of decisionLease.
	view    *view.View
	plan    view.Plan // of view
	report  view.Report
	endings map[view.Life]replica.Ending // of lives that view names
}

// LookSoon has the node find out at once which lives have ended, and where it stands in for them.
func (n *Node) LookSoon() { fill(n.lookSoon) }

// Become makes the node another life. No view that it has adopted names the one before.
func (n *Node) Become(l view.Life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decisionLease.become(l)
	n.report = view.Report{Life: l}
	for x := range n.parts.each {
		x.replica.Self = l
	}
}

// View returns the newest view that was adopted, nil before the first.
func (n *Node) View() *view.View {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.view
}

// Deciding returns by partition the term in which this node decides at the moment, 0 where it does not.
func (n *Node) Deciding() []uint64 {
	terms := make([]uint64, len(n.parts))
	for x := range n.parts.each {
		if x.replica.State == replica.Deciding && n.isValid() {
			terms[x.p] = x.replica.Claim.Term
		}
	}
	return terms
}

// IsWaiting reports whether this node owns a partition and has not settled.
func (n *Node) IsWaiting() bool { return n.waiting.Load() > 0 }

// Report returns what this node reports for views: the view that it has adopted, and which partitions are settled and complete in that.
func (n *Node) Report() view.Report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.view == nil || !n.reportDue.Swap(false) && n.report.Adopted == n.view.Number {
		return n.report
	}
	r, news := n.report.Following(n.view, n.plan, func(p int) bool {
		settled, _ := n.parts.report(p)
		return settled
	}, func(p int) bool {
		_, complete := n.parts.report(p)
		return complete
	})
	if news {
		n.report = r
	}
	return n.report
}

// Counts says how many partitions are in which state on a node.
type Counts struct {
	Deciding, Waiting int
	Planned           int // that the plan gives to it and that another node owns
	Standby           int // of which it is the standby of the newest view, and another node can be
	Owed              int // of which it has something that others are yet to get, and that it does not own
}

// Count counts the partitions.
func (n *Node) Count() (c Counts) {
	n.mu.Lock()
	plan := n.plan
	n.mu.Unlock()
	for x := range n.parts.each {
		switch r := &x.replica; {
		case r.State == replica.Deciding:
			c.Deciding++
		case r.State == replica.Waiting:
			c.Waiting++
		default:
			if int(x.p) < len(plan) && plan[x.p].Owner == r.Self.ID && r.Claim.Owner != r.Self {
				c.Planned++
			}
			if int(x.p) < len(plan) && plan[x.p].Standby != "" && r.Claim.Standby == r.Self {
				c.Standby++
			}
			if x.out.final.Term > 0 || r.Deltas.Count() > 0 || n.Shard.HasGrants(x.p) {
				c.Owed++
			}
		}
	}
	return c
}

// Replica returns the replica of a partition as it stands, and how many of its deltas its owner may not have, for people to read.
func (n *Node) Replica(p uint32) (r replica.Replica, deltas int) {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica, len(x.deltas.own.batches)
}
