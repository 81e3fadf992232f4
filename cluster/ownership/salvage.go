package ownership

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// If all nodes that may have decided for a partition are gone, a node begins that has no copy, or one from a snapshot. Other members may
// have better ones: learners, or nodes with later snapshots. The owner asks all members for the versions of their copies, and takes over the
// latest. It waits for the end of its predecessors anyway, and asks those that become members meanwhile, too. After a restart of all nodes it
// waits for those that were members with it before: each may have the latest counters on its disk. It grants from its copy meanwhile.

const (
	// salvagePatience is how long an owner without a copy waits for copies of others, from when it is owner, or the last has answered.
	salvagePatience = 3 * time.Second
	// restartPatience is how long an owner waits for nodes to come back that were stopped with it, from when it is a member: etcd may be back late.
	restartPatience = 10 * time.Second
)

// beginSalvage has the best copy searched if this node is to begin without one. had says whether it had one, not from a snapshot. x.mu is held.
func (x *partition) beginSalvage(had bool) {
	switch {
	case x.replica.State != replica.Waiting:
		x.in.search.since, x.in.search.isDone = time.Time{}, false
	case !had && x.in.search.since.IsZero() && len(x.replica.Claim.Predecessors) > 0:
		x.in.search = salvage{restored: x.in.search.restored, since: time.Now(), version: x.replica.Version}
	}
	if x.replica.State == replica.Deciding {
		x.in.search.restored = false
	}
}

// searches reports whether this node takes over the best copy that it finds.
func (x *partition) searches() bool {
	return !x.in.search.since.IsZero() && x.replica.State == replica.Waiting
}

// salvages reports whether this node does not decide before it has found the best copy.
func (x *partition) salvages() bool {
	s := &x.in.search
	if !x.searches() || s.isDone {
		return false
	}
	end := s.since.Add(salvagePatience)
	if x.node.lacksStopped(s.asked) {
		patience := x.node.restartOver()
		if s.best != (view.Life{}) {
			patience = patience.Add(salvagePatience)
		}
		if patience.After(end) {
			end = patience
		}
	}
	return time.Now().Before(end)
}

// restartOver returns until when this node waits for nodes that were stopped with it. A partition of which it is owner is in a view that it is a member of.
func (n *shared) restartOver() time.Time { return time.Unix(0, n.joined.Load()).Add(restartPatience) }

// lacksStopped reports whether a node was stopped with this one, and its later life is not among those that have answered. No node was if a life
// that was a member then is reached.
func (n *shared) lacksStopped(asked []view.Life) bool {
	if slices.ContainsFunc(n.expected, n.Peers.Reaches) {
		return false
	}
	return slices.ContainsFunc(n.expected, func(l view.Life) bool {
		return l.ID != n.Self.ID && !slices.ContainsFunc(asked, func(a view.Life) bool { return a.ID == l.ID })
	})
}
