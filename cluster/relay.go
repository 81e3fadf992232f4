package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/shard"
)

// relayHops is how often a standby asks for a group that it relays: the owner, by
// all that is known, and the member that this one names.
const relayHops = 2

// maxRelays is through how many members a node tries to reach one that it does not reach itself.
const maxRelays = 3

// relayPatience is the most that a frame waits for what is relayed, a third of it for what is
// relayed through others, and resumePatience for the decision lease of this node to be valid again: the sender
// hears nothing meanwhile, and takes that for death after silence.
const (
	relayPatience  = silence / 3
	resumePatience = 50 * time.Millisecond // it takes some 5
)

// allowCopy lets g be decided from copies where the local shard has no more. What this node
// has itself is none: if it does not decide, it must not.
func (t *table) allowCopy(g *shard.Group) {
	g.Lend = 0
	g.Provisional = !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return t.isOwnerOf(take.Key) })
}

// patience is how long what is asked of a standby waits for what is relayed: the asker waits for an attempt. So does one that is this node: its client
// waits for two, of which the owner has cost one, and turns to another node then.
func (r *Router) patience() time.Duration { return min(r.attempt*3/4, relayPatience) }

// answerAsStandby answers those groups that this node was asked for as a standby, and that
// have moved as far as the local shard knows: it has them decided by their owner, or
// else from its copies, where it may. The rest stays moved. The zero due is that of others' requests: with
// these, all else waits that they have asked meanwhile; the owner of this node's own was asked already. Others' requests
// are run, and none is decided that its asker has given up. What others are asked belongs to the span of ctx, which does not end. It returns how long to wait before what Waits is asked again.
func (r *Router) answerAsStandby(ctx context.Context, local Local, groups []shard.Group, run []request, how func(i int) role, due time.Time) (wait time.Duration) {
	others := due.IsZero()
	if r.locator != nil && r.locator.WasStopped() {
		wait = r.askAfterStop(ctx, groups, how, due, others)
	}
	relay := func(as role, by func(*table, *shard.Group, role) int) {
		wait = max(wait, r.relay(ctx, groups, how, due, others, as, by))
	}
	if others {
		patience, now := r.patience(), time.Now()
		due = now.Add(patience)
		if !onlyAsRelay(groups, how) { // else there is no other member to ask then
			due = due.Add(-patience / 3)
		}
		relay(asOwner, (*table).direct)
		for range relayHops - 1 {
			relay(asOwner, (*table).hinted)
		}
		due = now.Add(patience) // a member that did not answer has cost all the time of before
	} else {
		relay(asOwner, (*table).otherOwner)
	}
	for try := range maxRelays {
		relay(asRelay, indirect(others, try))
	}
	if others {
		relay(asOwner, (*table).inDoubt)
	}
	t, now := r.table.Load(), time.Now()
	for i := range groups {
		switch g := &groups[i]; {
		case how(i) == asOwner:
		case run != nil && redirected(g) && run[i].lateAt(now):
			forget(g)
		case g.Takes[0].Source == shard.Overloaded: // the owner is there, and not to be asked more
			forget(g)
		case t != nil && redirected(g) && !g.Moved && (t.hasAll(g) || t.mayUseCopies(g)):
			forget(g)
			t.allowCopy(g)
			wait = max(wait, r.denialLeases.decide(local, groups[i:i+1]))
		}
	}
	return wait
}

// decideApart decides from copies what this node owns and waits for, while it reaches none that it waits for.
func (r *Router) decideApart(local Local, groups []shard.Group) (wait time.Duration) {
	t := r.table.Load()
	if r.locator == nil || t == nil {
		return 0
	}
	apart := func(take shard.Take) bool { return r.locator.DecidesApart(t.partition(take.Key)) }
	for i := range groups {
		g := &groups[i]
		if !redirected(g) || !slices.ContainsFunc(g.Takes, apart) ||
			slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return !apart(take) && !t.isOwnerOf(take.Key) }) {
			continue
		}
		forget(g)
		g.Lend, g.Provisional = 0, true // what this node decides as the owner, it does not decide without the decision lease
		wait = max(wait, r.denialLeases.decide(local, groups[i:i+1]))
	}
	return wait
}

// askAfterStop asks for those groups again that the owners have not decided, as this node was stopped until just now: their connections may have broken
// meanwhile, or what they said was not heard. It asks until all is decided, for resumePatience at most.
func (r *Router) askAfterStop(ctx context.Context, groups []shard.Group, how func(i int) role, due time.Time, others bool) (wait time.Duration) {
	over := time.Now().Add(min(r.patience(), resumePatience))
	if !others && due.Before(over) {
		over = due
	}
	for {
		wait = max(wait, r.relay(ctx, groups, how, over, others, asOwner, (*table).direct))
		if !anyRedirected(groups, how) || !time.Now().Add(copyPause).Before(over) {
			return wait
		}
		pauseFor(ctx, copyPause)
	}
}

// anyRedirected reports whether a group that this node was asked for as a standby has not been decided by its owner.
func anyRedirected(groups []shard.Group, how func(i int) role) bool {
	for i := range groups {
		if how(i) != asOwner && redirected(&groups[i]) {
			return true
		}
	}
	return false
}

// onlyAsRelay reports whether this node was asked for groups only as one that reaches their owner.
func onlyAsRelay(groups []shard.Group, how func(i int) role) bool {
	for i := range groups {
		if how(i) != asRelay {
			return false
		}
	}
	return true
}

// greet has the member of that id asked again by checks, which was suspended and has just said by
// itself that it is back.
func (r *Router) greet(id string) {
	t := r.table.Load()
	if t == nil {
		return
	}
	if i, member := t.view.Index(id); member && t.peers[i] != nil {
		t.peers[i].spared.Store(0)
		for _, l := range t.peers[i].conns {
			l.greet(time.Now())
		}
	}
}

// hears records that the member of that id has called this node: it is there, and its connections can be made again.
func (r *Router) hears(id string) {
	t := r.table.Load()
	if t == nil {
		return
	}
	if i, member := t.view.Index(id); member && t.peers[i] != nil {
		for _, l := range t.peers[i].conns {
			l.hears()
		}
	}
}

// decideHere has the local shard decide, as DenialLeases.decide does, and again what it may not decide
// just now because its decision lease is suspended.
func (r *Router) decideHere(groups []shard.Group, due time.Time) (wait time.Duration) {
	wait = r.denialLeases.decide(r.local, groups)
	wait = max(wait, r.decideOnceResumed(r.local, groups, nil, due))
	return max(wait, r.decideApart(r.local, groups))
}

// decideOnceResumed has the local shard decide again what this node holds and could not decide
// because its decision lease is suspended. It waits until that is valid, but not for long, and until due at most, unless that is zero. Others' requests
// are run: what the asker has given up meanwhile stays Unanswered.
func (r *Router) decideOnceResumed(local Local, groups []shard.Group, run []request, due time.Time) (wait time.Duration) {
	t, waited := r.table.Load(), false
	if t == nil || t.locator == nil {
		return 0
	}
	for i := range groups {
		g := &groups[i]
		if !redirected(g) || !slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return isRedirected(take) && t.isOwnerOf(take.Key) }) {
			continue
		}
		if resumed := r.locator.Returning(); resumed != nil && !waited {
			waited = true
			patience := min(r.attempt/2, resumePatience)
			if !due.IsZero() {
				patience = min(patience, time.Until(due))
			}
			if patience > 0 {
				over := time.NewTimer(patience)
				select {
				case <-resumed:
				case <-over.C:
				}
				over.Stop()
			}
		}
		forget(g)
		if run == nil || !run[i].lateAt(time.Now()) {
			wait = max(wait, r.denialLeases.decide(local, groups[i:i+1]))
		}
	}
	return wait
}

// passOn has takes undone by the nodes that have their counters now: what this node had decided as the owner, and does
// not have any more. What was passed on already is lost.
func (r *Router) passOn(takes []shard.Take) {
	t := r.table.Load()
	for i := range takes {
		id := ""
		if t != nil {
			id = t.has(takes[i].Key)
		}
		r.passTo(id, takes[i])
	}
}

// returnGranted has takes undone that this node has granted as the standby, by the owner, once that has the grants.
func (r *Router) returnGranted(takes []shard.Take) {
	for i := range takes {
		if r.locator == nil {
			r.metrics.lostReturns.Inc()
		} else if to := r.locator.ReturnGranted(takes[i]); to != "" {
			r.passTo(to, takes[i])
		}
	}
}

// passTo has a take undone by the member of that id, or else by the one that is asked about its counter.
func (r *Router) passTo(id string, take shard.Take) {
	t := r.table.Load()
	if t == nil {
		r.metrics.lostReturns.Inc()
		return
	}
	to, member := t.view.Index(id)
	if !member || to == t.self {
		to = t.route(take.Key)
	}
	take.Source = shard.Redirected
	if t.peers[to] == nil || t.conn(to, take.Key).giveBack([]shard.Take{take}, 0) != nil {
		r.metrics.lostReturns.Inc()
	}
}

// relay has what has moved decided by others, once, asked as what as says. Where it is others' requests
// they wait meanwhile with all else that they have asked, so who is late is not asked again soon. One that has it is, though, unless it says nothing
// at all: others may only say that they do not reach it either.
func (r *Router) relay(ctx context.Context, groups []shard.Group, how func(int) role, due time.Time, others bool, as role, by func(*table, *shard.Group, role) int) (wait time.Duration) {
	t, now := r.table.Load(), time.Now()
	if t == nil || !now.Before(due) {
		return 0
	}
	s := newScatter(r, t)
	defer s.free()
	s.how = as
	instant := int64(now.Sub(r.hot.started))
	for i := range groups {
		g := &groups[i]
		if how(i) == asOwner || !redirected(g) {
			continue
		}
		to := by(t, g, how(i))
		if to != noMember && t.peers[to] != nil && (!others || t.peers[to].spared.Load() <= instant) {
			forget(g)
			s.assign(to, g, nil, nil)
		}
	}
	if s.size() == 0 {
		return 0
	}
	wait = s.exchange(ctx, due)
	late := others && !time.Now().Before(due)
	s.each(func(to *peer, g *shard.Group, _ *part) {
		switch {
		case g.Takes[0].Source == shard.Owner, g.Takes[0].Source == shard.Relayed:
			r.metrics.relayed.Inc()
			setSource(g, shard.Relayed)
			nameDecider(g, to)
		case g.Takes[0].Source == shard.Provisional:
			nameDecider(g, to)
		case s.isLost(g): // it stays unanswered
		case undecided(g):
			g.Moved = as == asOwner && to == t.peers[t.owner(g.Takes[0].Key)] && t.isMoving(g)
			setSource(g, shard.Redirected)
			if late && !(as == asOwner && to.saidSomethingSince(now)) {
				to.spared.Store(instant + int64(probeEvery))
			}
		}
	})
	return wait
}
