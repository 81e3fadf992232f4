package cluster

import "github.com/weirlimit/weir/shard"

// undecided reports whether g, which was asked, is not decided, or its answer is deferred. What is
// undecided is so as a whole.
func undecided(g *shard.Group) bool {
	if len(g.Takes) == 0 {
		return false
	}
	s := g.Takes[0].Source
	return s == shard.Undecided || s == shard.Redirected || s == shard.Deferred
}

func anyUndecided(groups []shard.Group) bool {
	for i := range groups {
		if undecided(&groups[i]) {
			return true
		}
	}
	return false
}

// redirected reports whether g is undecided because the member that was asked does not have a counter of it.
func redirected(g *shard.Group) bool {
	for i := range g.Takes {
		if g.Takes[i].Source == shard.Redirected {
			return true
		}
	}
	return false
}

// forget makes g one that was not asked.
func forget(g *shard.Group) {
	g.Allowed, g.Deferred, g.By, g.Waits, g.Lost, g.Moved = false, 0, 0, false, false, false
	setSource(g, shard.Undecided)
}

func setSource(g *shard.Group, s shard.Source) {
	for i := range g.Takes {
		g.Takes[i].Source = s
	}
}

// nameDecider names the peer to as the one that has decided g, unless the answer names another node already.
func nameDecider(g *shard.Group, to *peer) {
	if g.By == 0 {
		g.By = markOf(to.member.ID)
	}
}
