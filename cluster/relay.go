package cluster

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/shard"
)

// relayHops is how often a standby asks for a group that it relays: the owner, by
// all that is known, and the member that this one names.
const relayHops = 2

// relaying is what it takes to answer groups that this node was asked for as a standby, and that have moved as far as the local
// shard knows.
type relaying struct {
	own    *ownReplicas
	ctx    context.Context // members are asked under its span; it does not end
	local  Local
	groups []shard.Group
	run    []request     // by group: the requests of another node; nil for this node's own checks
	as     role          // as what this node is asked by its own checks
	asker  string        // the id of the node that asks, empty for this node's own checks
	due    time.Time     // until when members are asked
	brief  bool          // members are asked for so little time that one may be late and well
	wait   time.Duration // before what Waits is asked again
}

// how returns as what this node was asked for a group.
func (q *relaying) how(i int) role {
	if q.run != nil {
		return q.run[i].how
	}
	return q.as
}

// answer has the groups decided by their owner, or else from this node's copies, where it may. The rest stays moved. With others'
// requests, all else waits that they have asked meanwhile; the owner of this node's own was asked already. None is decided that its
// asker has given up. answer returns how long to wait before what Waits is asked again.
func (q *relaying) answer() (wait time.Duration) {
	if q.own.locator.WasStopped() {
		q.askAfterStop()
	}
	others := q.run != nil
	if others {
		now := time.Now()
		patience := q.patience(now)
		q.brief = patience < q.own.patience()*3/4
		q.due = now.Add(patience)
		if q.any(func(how role, _ *shard.Group) bool { return how != asRelay }) { // else there is no other member to ask then
			q.due = q.due.Add(-patience / 3)
		}
		q.relay(asOwner, (*routingTable).direct)
		for range relayHops - 1 {
			q.relay(asOwner, (*routingTable).hinted)
		}
		q.due = now.Add(patience) // a member that did not answer has cost all the time of before
	} else {
		q.relay(asOwner, (*routingTable).otherOwner)
	}
	for try := range maxRelays {
		q.relay(asRelay, indirect(q.asker, others, try))
	}
	if others {
		q.relay(asOwner, (*routingTable).inDoubt)
	}
	q.decideFromCopies()
	return q.wait
}

// patience is how long others' requests wait from now on. Those that have waited for this node already, behind others, wait for half of the time that their
// askers still have, or all but what the answers need: a member that does not answer must not cost one frame after the other that time.
func (q *relaying) patience(now time.Time) time.Duration {
	patience := q.own.patience()
	for i := range q.groups {
		r := &q.run[i]
		if r.how == asOwner || r.until.IsZero() || !redirected(&q.groups[i]) {
			continue
		}
		left := max(0, r.until.Sub(now))
		patience = min(patience, max(left/2, left-q.own.router.attempt/4))
	}
	return patience
}

// decideFromCopies decides what no other member has decided, where this node may.
func (q *relaying) decideFromCopies() {
	t, now := q.own.router.table.Load(), time.Now()
	for i := range q.groups {
		switch g := &q.groups[i]; {
		case q.how(i) == asOwner:
		case q.run != nil && redirected(g) && q.run[i].lateAt(now):
			forget(g)
		case g.Takes[0].Source == shard.Overloaded: // the owner is there, and not to be asked more
			forget(g)
		case t != nil && redirected(g) && !g.Moved && (t.hasAll(g) || t.mayUseCopies(g)):
			forget(g)
			t.allowCopy(g)
			q.wait = max(q.wait, q.own.denialLeases.decide(q.local, q.groups[i:i+1]))
		}
	}
}

// askAfterStop asks for those groups again that the owners have not decided, as this node was stopped until just now: their connections may have broken
// meanwhile, or what they said was not heard. It asks until all is decided, for resumePatience at most.
func (q *relaying) askAfterStop() {
	due := q.due
	q.due = time.Now().Add(min(q.own.patience(), resumePatience))
	if q.run == nil && due.Before(q.due) {
		q.due = due
	}
	moved := func(how role, g *shard.Group) bool { return how != asOwner && redirected(g) }
	for {
		q.relay(asOwner, (*routingTable).direct)
		if !q.any(moved) || !time.Now().Add(copyPause).Before(q.due) {
			break
		}
		pauseFor(q.ctx.Done(), copyPause)
	}
	q.due = due
}

// any reports whether f is true of a group that this node was asked for in that role.
func (q *relaying) any(f func(how role, g *shard.Group) bool) bool {
	for i := range q.groups {
		if f(q.how(i), &q.groups[i]) {
			return true
		}
	}
	return false
}

// relay has what has moved decided by others, once, asked as what as says. Where it is others' requests
// they wait meanwhile with all else that they have asked, so who is late is not asked again soon. One that has it is, though, unless it says nothing
// at all: others may only say that they do not reach it either.
func (q *relaying) relay(as role, by func(*routingTable, *shard.Group, role) int) {
	r, now, others := q.own.router, time.Now(), q.run != nil
	t := r.table.Load()
	if t == nil || !now.Before(q.due) {
		return
	}
	s := newScatter(r, t)
	defer s.free()
	s.how = as
	instant := int64(now.Sub(r.hot.started))
	for i := range q.groups {
		g := &q.groups[i]
		if !q.how(i).mayForward(as) || !redirected(g) {
			continue
		}
		to := by(t, g, q.how(i))
		if to != noMember && t.peers[to] != nil && (!others || t.peers[to].spared.Load() <= instant) {
			forget(g)
			s.assign(to, g, nil, nil)
		}
	}
	if s.size() == 0 {
		return
	}
	q.wait = max(q.wait, s.exchange(q.ctx, q.due))
	late := others && !q.brief && !time.Now().Before(q.due)
	s.each(func(to *peer, g *shard.Group, _ *part) {
		if !s.noteRelayed(to, g) && late && !(as == asOwner && to.saidSomethingSince(now)) {
			to.spared.Store(instant + int64(probeEvery))
		}
	})
}

// noteRelayed marks g, which was relayed to a peer, with what has become of it. It returns false if the peer has not decided g, which
// can be asked of others then.
func (s *scatter) noteRelayed(to *peer, g *shard.Group) bool {
	switch source := g.Takes[0].Source; {
	case source == shard.Owner, source == shard.Relayed:
		s.router.metrics.relayed.Inc()
		setSource(g, shard.Relayed)
		nameDecider(g, to)
	case source == shard.Provisional:
		nameDecider(g, to)
	case s.isLost(g): // it stays undecided
	case undecided(g):
		g.Moved = s.how == asOwner && to == s.table.peers[s.table.owner(g.Takes[0].Key)] && s.table.isMoving(g)
		setSource(g, shard.Redirected)
		return false
	}
	return true
}

// nameDecider names the peer to as the one that has decided g, unless the answer names another node already.
func nameDecider(g *shard.Group, to *peer) {
	if g.By == 0 {
		g.By = markOf(to.member.ID)
	}
}

// decideCopies answers, until due, groups of this node's own check, which is that of ctx. The role in which this node is asked is how.
func (o *ownReplicas) decideCopies(ctx context.Context, groups []shard.Group, how role, due time.Time) (wait time.Duration) {
	q := relaying{own: o, ctx: context.Background(), local: o.local, groups: groups, as: how, due: due}
	if o.router.tracerOf(ctx) != nil {
		var span trace.Span
		q.ctx, span = o.startDecision(context.WithoutCancel(ctx), &groups[0], how)
		defer func() { endDecision(span, groups) }()
	}
	return q.answer()
}
