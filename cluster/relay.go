package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/ring"
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

// standby returns the index of the standby of k's counter, noMember if there is only the
// owner.
func (t *table) standby(k ring.Key) int {
	p := k.Partition(uint32(len(t.routes)))
	if s := t.view.Ring.Standby(p); s != t.view.Ring.Owner(p) {
		return s
	}
	return noMember
}

// peerOf returns the peer through which a member is asked, nil for this node and for noMember.
func (t *table) peerOf(member int) *peer {
	if member == noMember {
		return nil
	}
	return t.peers[member]
}

// keeps reports whether this node may decide g from copies: it is the owner or the standby of all
// counters.
func (t *table) keeps(g *shard.Group) bool {
	if t == nil || t.self < 0 {
		return false
	}
	for i := range g.Takes {
		if k := g.Takes[i].Key; t.owner(k) != t.self && t.standby(k) != t.self {
			return false
		}
	}
	return true
}

// mayUseCopies reports whether this node may decide g from its copies: it is the owner or the standby of all counters, and these copies are
// ones to grant from.
func (r *Router) mayUseCopies(t *table, g *shard.Group) bool {
	return t.keeps(g) && (r.locator == nil || !slices.ContainsFunc(g.Takes, func(take shard.Take) bool {
		return !r.locator.IsGrantable(t.partition(take.Key))
	}))
}

// hasAll reports whether this node has all counters of g: others may have been asked while it got them.
func (r *Router) hasAll(g *shard.Group) bool {
	return !slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return !r.isOwnerOf(t.Key) })
}

// allowCopy lets g be decided from copies where the local shard has no more. What this node
// has itself is none: if it does not decide, it must not.
func (r *Router) allowCopy(g *shard.Group) {
	g.Lend = 0
	g.Provisional = !slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return r.isOwnerOf(t.Key) })
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
		relay(asOwner, r.direct)
		for range relayHops - 1 {
			relay(asOwner, r.hinted)
		}
		due = now.Add(patience) // a member that did not answer has cost all the time of before
	} else {
		relay(asOwner, r.otherOwner)
	}
	for try := range maxRelays {
		relay(asRelay, r.indirect(others, try))
	}
	if others {
		relay(asOwner, r.inDoubt)
	}
	t, now := r.table.Load(), time.Now()
	for i := range groups {
		switch g := &groups[i]; {
		case how(i) == asOwner:
		case run != nil && redirected(g) && run[i].lateAt(now):
			forget(g)
		case g.Takes[0].Source == shard.Overloaded: // the owner is there, and not to be asked more
			forget(g)
		case t != nil && redirected(g) && !g.Moved && (r.hasAll(g) || r.mayUseCopies(t, g)):
			forget(g)
			r.allowCopy(g)
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
			slices.ContainsFunc(g.Takes, func(take shard.Take) bool { return !apart(take) && !r.isOwnerOf(take.Key) }) {
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
		wait = max(wait, r.relay(ctx, groups, how, over, others, asOwner, r.direct))
		if !anyRedirected(groups, how) || !time.Now().Add(copyPause).Before(over) {
			return wait
		}
		r.pause(ctx, copyPause)
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
	waited := false
	for i := range groups {
		g := &groups[i]
		if !redirected(g) || r.locator == nil || !slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return t.Source == shard.Redirected && r.isOwnerOf(t.Key) }) {
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
			id = r.has(t, takes[i].Key)
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

// direct returns who is said to have g, unless there is doubt whether that is there. Where the one that was asked last does not
// answer, that may be another one.
func (r *Router) direct(t *table, g *shard.Group, _ role) (to int) {
	r.redirectedHere(g)
	to, one := t.routeOf(g)
	if other := r.otherOwner(t, g, asStandby); other != noMember {
		to = other
	}
	if !one || t.doubts(to, g) {
		return noMember
	}
	return to
}

// hinted is direct once a member was asked: an owner that has just said that it has nothing of g would say so again.
func (r *Router) hinted(t *table, g *shard.Group, how role) (to int) {
	to = r.direct(t, g, how)
	if k := g.Takes[0].Key; to == t.owner(k) && t.isVacant(k) {
		return noMember
	}
	return to
}

// otherOwner returns who has g as this node knows by other means than by asking, if the one that is asked for it does not answer.
func (r *Router) otherOwner(t *table, g *shard.Group, _ role) int {
	to, one := t.routeOf(g)
	k := g.Takes[0].Key
	if i, member := t.view.Index(r.has(t, k)); one && member && i != to && !t.answers(to, k) {
		return i
	}
	return noMember
}

// inDoubt returns who is said to have g although there is doubt, if this node would decide from a
// copy now. One that would not says at once that it does not reach it, so that others are asked.
func (r *Router) inDoubt(t *table, g *shard.Group, _ role) (to int) {
	to, one := t.routeOf(g)
	if !one || !t.doubts(to, g) || !t.keeps(g) {
		return noMember
	}
	return to
}

// doubts reports whether the member that is asked for g is late to say anything.
func (t *table) doubts(to int, g *shard.Group) bool {
	return t.peers[to] != nil && t.conn(to, g.Takes[0].Key).doubtful(time.Now())
}

// inTime reports whether a member answers, and does so while a caller waits for what is relayed to it.
func (r *Router) inTime(t *table, i int, g *shard.Group) bool {
	p := t.peers[i]
	return p != nil && t.answers(i, g.Takes[0].Key) && !t.doubts(i, g) && p.spared.Load() <= int64(time.Since(r.hot.started))
}

// indirect returns which member is asked for g in the place of the one that has it, if this node does not reach that. If this node may
// decide from a copy, that is the try-th member that reaches it, as this node decides only if none does. Else it is the standby, for a node that does not
// reach that. Of others' requests the one that has it was asked just now, if it answers at all.
func (r *Router) indirect(others bool, try int) func(*table, *shard.Group, role) int {
	return func(t *table, g *shard.Group, how role) int {
		k := g.Takes[0].Key
		switch {
		case how != asStandby:
			return noMember
		case !t.keeps(g):
			if try > 0 {
				return noMember
			}
			return t.standby(k)
		}
		has := r.has(t, k)
		if i, member := t.view.Index(has); others && member && r.inTime(t, i, g) { // it has said that it does not have it
			return noMember
		}
		if relays := r.relaysTo(t, k, has); try < len(relays) {
			return relays[try]
		}
		return noMember
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
	s := newScatter(t)
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
	wait = r.exchange(ctx, s, due)
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
			g.Moved = as == asOwner && to == t.peers[t.owner(g.Takes[0].Key)] && r.isMoving(t, g)
			setSource(g, shard.Redirected)
			if late && !(as == asOwner && to.saidSomethingSince(now)) {
				to.spared.Store(instant + int64(probeEvery))
			}
		}
	})
	return wait
}

// isMoving reports whether the owner has answered that it does not decide g, and another node is about to: no copy is decided from meanwhile. An owner that
// names itself is about to do nothing.
func (r *Router) isMoving(t *table, g *shard.Group) bool {
	return redirected(g) && !t.isVacant(g.Takes[0].Key)
}

// nameDecider has g say that the peer to has decided it, unless it says already who has, in the place of that.
func nameDecider(g *shard.Group, to *peer) {
	if g.By == 0 {
		g.By = markOf(to.member.ID)
	}
}

func setSource(g *shard.Group, s shard.Source) {
	for i := range g.Takes {
		g.Takes[i].Source = s
	}
}
