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

func isStrict(g *shard.Group) bool {
	for i := range g.Takes {
		if g.Takes[i].Strict {
			return true
		}
	}
	return false
}

// relax has g decided as if nothing of it were strict.
func relax(g *shard.Group) {
	for i := range g.Takes {
		g.Takes[i].Strict = false
	}
}

// isDeferred reports whether g is decided, and the answer waits for the standby.
func isDeferred(g *shard.Group) bool { return len(g.Takes) > 0 && g.Takes[0].Source == shard.Deferred }

// release makes g, which was deferred, one that is answered.
func release(g *shard.Group) {
	g.Allowed, g.Deferred = true, 0 // what is denied was never deferred
	setSource(g, shard.Owner)
}

func overload(g *shard.Group) {
	if g.Deferred > 0 { // it is decided
		release(g)
		return
	}
	for i := range g.Takes {
		g.Takes[i].Source = shard.Overloaded
	}
}

// frees reports whether g may leave more room in a counter than there was.
func frees(g *shard.Group) bool {
	if g.Reset {
		return true
	}
	for i := range g.Takes {
		if g.Takes[i].Cost < 0 {
			return !g.Peek
		}
	}
	return false
}

// denies reports whether t denies its group, if no node decides it any more.
func denies(t *shard.Take) bool {
	switch t.Source {
	case shard.Undecided:
		return t.OnFailure == shard.FailClosed
	case shard.Overloaded:
		return true
	default:
		return !t.Decision.Allowed
	}
}
