package ownership

import (
	"slices"

	"github.com/weirlimit/weir/cluster/replica"
	"github.com/weirlimit/weir/cluster/view"
	"github.com/weirlimit/weir/shard"
)

// given is a final state that the node goes on from, as it is the only one. The predecessor that gave it still has it: if it is the standby now, all that
// it lacks is what changes from then on.
type given struct {
	by      view.Life
	version replica.Version
}

// givenFollower is the follower of the shard that is the one that has given a final state.
const givenFollower = shard.ToStandby

// isOf reports whether the feed of follower f, to a node, can go on from what that has given.
func (g *given) isOf(f shard.Follower, to view.Life) bool { return g.by == to && f == givenFollower }

// noteGiven has the changes tracked that the standby lacks, once its final state is laid down and before anything else is counted. What this node
// has granted itself from its copy, or was told that others have, is not among them, and its predecessor may lack it: such a standby is fed everything.
// x.mu is held.
func (x *partition) noteGiven(from view.Life, m *Changes) {
	c := &x.replica.Claim
	isOnly := len(c.Predecessors) == 1 && slices.Contains(c.Predecessors, from)
	hasMore := x.in.feed.apart || len(x.deltas.own.batches) > 0
	if m.FinalFor == 0 || !m.ReadsBase || !isOnly || c.Standby != from || x.out.feeds[givenFollower].to != (view.Life{}) || hasMore {
		return
	}
	x.in.given = given{from, m.Version}
	if x.node.Shard.FollowChanges(x.p, givenFollower); x.node.Shard.HasGrants(x.p) {
		x.forgetGiven()
	}
}

// forgetGiven ends that changes are tracked, if no feed has begun from what was given. x.mu is held.
func (x *partition) forgetGiven() {
	if x.in.given == (given{}) {
		return
	}
	x.in.given = given{}
	if x.out.feeds[givenFollower].to == (view.Life{}) {
		x.node.Shard.Unfollow(x.p, givenFollower)
	}
}
