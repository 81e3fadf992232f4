package cluster

import "github.com/weirlimit/weir/shard"

// localSalt tells the counter of this node's share from the owner's: both may stand
// in this node's tables when the owner changes. Here it spells "local".
const localSalt = 0x6c6f63616c

// applyPolicies decides g once its takes have been answered or given up: the failure
// policies decide the takes that were not.
func (r *Router) applyPolicies(t *routingTable, g *shard.Group) {
	g.Allowed = true
	local, members := false, membersOf(t)
	for i := range g.Takes {
		take := &g.Takes[i]
		if take.Source == shard.Undecided {
			take.Shares = members
		}
		g.Allowed = g.Allowed && (take.Shadow || !denies(take))
		local = local || isLocal(take)
	}
	if local {
		r.decideLocally(g, int64(members))
	}
}

// membersOf returns how many nodes share each limit.
func membersOf(t *routingTable) uint16 {
	if t == nil {
		return 1
	}
	return uint16(len(t.view.Members))
}

// isLocal reports whether t is to be decided by this node's share.
func isLocal(t *shard.Take) bool {
	return t.Source == shard.Undecided && t.OnFailure == shard.FailLocal
}

// decideLocally answers, all at once, the takes of g that are to be decided by this
// node's share. If another take has denied the group, they only look.
func (r *Router) decideLocally(g *shard.Group, members int64) {
	var indices []int
	own := []shard.Group{{Peek: g.Peek || !g.Allowed, Reset: g.Reset, Ungated: true}}
	for i := range g.Takes {
		if isLocal(&g.Takes[i]) {
			indices = append(indices, i)
			own[0].Takes = append(own[0].Takes, shareOf(g.Takes[i], members))
		}
	}
	r.own.local.Decide(own)
	g.Allowed = g.Allowed && own[0].Allowed
	for j, i := range indices {
		g.Takes[i].Decision, g.Takes[i].Source = own[0].Takes[j].Decision, shard.Local
	}
}

// shareOf is t held against one of so many equal shares of its limit, rounded up.
func shareOf(t shard.Take, members int64) shard.Take {
	t.Key = t.Key.With(localSalt)
	t.Limit = t.Limit.Share(members)
	return t
}
