package ownership

import (
	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
)

// Decider returns the node that is asked for a partition, as far as this one knows: the owner of the newest view, or a predecessor that answers this node and whose
// final state this owner waits for. It is the zero value before the first view, and if this owner decides from its copy, as no node reaches any of them.
func (n *Node) Decider(p uint32) view.Life {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.waitsFor()
	switch {
	case x.place.standsIn && x.replica.State < replica.Waiting:
		return view.Life{}
	case w.answers != view.Life{}:
		return w.answers
	case w.isOn && !w.isReached && x.isGrantable():
		return view.Life{}
	}
	return x.replica.Claim.Owner
}

// DecidesProvisionally reports whether this node decides from its copy for all that ask: it stands in for lives that have ended, or is the owner, and
// waits for predecessors none of which is reached.
func (n *Node) DecidesProvisionally(p uint32) bool {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.waitsFor()
	return x.place.standsIn || w.isOn && !w.isReached && x.isGrantable()
}

// wait is whether an owner waits for predecessors, and what is known of those.
type wait struct {
	isOn      bool
	answers   view.Life // one that answers this node, the zero value for none
	isReached bool      // by this node or another one
}

// waitsFor returns whether an owner waits for predecessors. x.mu is held.
func (x *partition) waitsFor() (w wait) {
	for _, l := range x.replica.Claim.Predecessors {
		if !x.replica.Lacks(l) {
			continue
		}
		w.isOn = true
		if x.node.Peers.Reaches(l) {
			w.isReached = true
			if w.answers == (view.Life{}) && x.node.Peers.ReachesID(l.ID) {
				w.answers = l
			}
		}
	}
	return w
}

// IsGrantable reports whether this node may decide from its copy if the node that is to decide does not answer.
func (n *Node) IsGrantable(p uint32) bool {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.replica.State == replica.Waiting && !x.place.standsIn && !x.replica.MayGrantFromCopy(n.Peers.Reaches) {
		return false
	}
	return x.isGrantable()
}

// GrantsAreAdded reports whether the owner has all that this node has granted from its copy of a partition.
func (n *Node) GrantsAreAdded(p uint32) bool {
	x := &n.parts[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.replica.Deltas.Count() == 0 && !n.Shard.HasGrants(p)
}
