package cluster

import (
	"maps"
	"slices"

	"github.com/weirlimit/weir/shard"
)

// What Ownership tells the router of this node: which member is asked for a partition.

// OwnerOf implements Locator.
func (k *Ownership) OwnerOf(p uint32) (id string, known bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil {
		return "", false
	}
	pt := &k.parts[p]
	c := k.claim(p)
	switch {
	case (k.over || pt.over) && c.owner.id == k.Self.ID:
		return k.Self.ID, true
	case pt.tenure.state == sealed:
		return pt.tenure.to.id, true
	case pt.tenure.state == active:
		return k.Self.ID, true
	case c.owner == k.ownParty && pt.from != "":
		return pt.from, true
	case k.isFed(p, c):
		return pt.fedBy, true
	case c.owner.id != k.Self.ID:
		return c.owner.id, true
	case (c.owner != k.ownParty || pt.restarted) && (pt.copy.term == 0 || pt.copy.isRestored() && !pt.fresh), k.leavesIt(p):
		return k.Self.ID, true
	}
	return "", false
}

// isFed reports whether this node is the standby of p, and what it has been sent is of the tenure that counts: the member that has sent it has
// that tenure. Another member may own p, and not have fetched it yet.
func (k *Ownership) isFed(p uint32, c claim) bool {
	pt := &k.parts[p]
	_, member := k.view.Index(pt.fedBy)
	return member && k.view.Members[k.view.Ring.Standby(p)].ID == k.Self.ID && pt.copy.term >= firstOf(c.epoch)
}

// leavesIt reports whether this node, which owns p and has not got it, leaves it to the standby to decide
// from its copy, which is as good.
func (k *Ownership) leavesIt(p uint32) bool {
	pt, standby := &k.parts[p], k.view.partyAt(k.view.Ring.Standby(p))
	return pt.tenure.state == absent && k.claim(p).owner == k.ownParty && pt.copyAt == standby && standby != k.ownParty && !pt.fresh && !pt.last && k.Router.Reaches(standby.id)
}

// ReturnGranted implements Locator. A node that takes a copy over, with the grants in it, may have it with or without what
// is given back here. So that is not given back: too few tokens are left rather than too many.
func (k *Ownership) ReturnGranted(take shard.Take) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.view == nil {
		return ""
	}
	p := take.Key.Partition(uint32(len(k.parts)))
	if o, under := k.outbox[p]; under {
		if len(o.returns) < maxGrantReturns {
			o.returns = append(o.returns, take)
			k.outbox[p] = o
		}
		return ""
	}
	if !k.parts[p].copy.whole {
		return ""
	}
	return k.claim(p).owner.id
}

// Copy implements Locator.
func (k *Ownership) Copy(p uint32) (whole, best bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	if k.view == nil || k.over || pt.over || pt.tenure.state != absent {
		return false, false
	}
	return pt.copy.whole, pt.copy.whole && pt.fresh || pt.last || pt.copyAt.id != "" && !k.isReached(pt.copyAt.id)
}

// DecidesApart implements Locator. An owner that waits has no copy to decide from.
func (k *Ownership) DecidesApart(uint32) bool { return false }

// isReached reports whether the member of that id answers this node, or another one that has said so since it does not answer this one.
func (k *Ownership) isReached(id string) bool {
	lost, reaches := k.Router.lostAt(id)
	return reaches || len(reachingAmong(slices.Collect(maps.Values(k.peers)), id, lost)) > 0
}

// CopyAt implements Locator.
func (k *Ownership) CopyAt(p uint32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	pt := &k.parts[p]
	if pt.copyAt.id == "" && k.view != nil && !k.over && !pt.over && pt.tenure.state == absent && pt.copy.whole && pt.fresh {
		return k.Self.ID
	}
	return pt.copyAt.id
}
