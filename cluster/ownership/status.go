package ownership

import (
	"github.com/weirlimit/weir/cluster/replica"
)

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
