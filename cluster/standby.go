package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// relayHops is how often a standby asks for a group that it relays: those who have it, by
// all that is known, and who they say has it.
const relayHops = 2

// relayPatience is the most that a frame waits for what is relayed: whoever has sent it hears
// nothing meanwhile, and takes that for death after silence.
const relayPatience = silence / 3

// standby returns the index of the standby of k's counter, nobody if there is only the
// owner.
func (t *table) standby(k ring.Key) int {
	p := k.Partition(uint32(len(t.routes)))
	if s := t.view.Ring.Standby(p); s != t.view.Ring.Owner(p) {
		return s
	}
	return nobody
}

// peerOf returns whom a member is asked through, nil for this node and for nobody.
func (t *table) peerOf(member int) *peer {
	if member == nobody {
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

// askStandbys asks for what of top is stranded: of what has moved first the owner, which is
// about to get it, and of the rest the standby.
func (r *Router) askStandbys(ctx context.Context, top *spread) {
	t := r.table.Load()
	owners, others, standbys := newSpread(t), newSpread(t), newSpread(t)
	defer owners.free()
	defer others.free()
	defer standbys.free()
	owners.standby, others.standby, standbys.standby = true, true, true
	for _, left := range top.stranded {
		if left.moved {
			owners.place(top, left.group, left.part, t.owner)
		} else {
			others.place(top, left.group, left.part, r.beforeCopies(t))
		}
	}
	r.exchange(ctx, owners, r.due(ctx, time.Now()))
	owners.each(func(_ *peer, g *shard.Group, p *part) {
		if undecided(g) {
			others.place(top, g, p, r.beforeCopies(t))
		}
	})
	r.exchange(ctx, others, r.due(ctx, time.Now()))
	others.each(func(to *peer, g *shard.Group, p *part) {
		switch {
		case !undecided(g):
		case to != nil && t.peerOf(t.standby(g.Takes[0].Key)) != to: // it was asked for somebody else
			standbys.place(top, g, p, t.standby)
		default:
			forget(g)
		}
	})
	r.exchange(ctx, standbys, r.due(ctx, time.Now()))
	standbys.each(func(_ *peer, g *shard.Group, _ *part) {
		if undecided(g) {
			forget(g)
		}
	})
	r.metrics.toStandby.Add(float64(owners.size() + others.size() + standbys.size()))
}

// beforeCopies returns whom to ask about a counter if this node does not reach the one that has
// it: the standby; but if that does not answer either, or this node may decide from a copy
// itself, somebody who does, if anybody.
func (r *Router) beforeCopies(t *table) func(ring.Key) int {
	return func(k ring.Key) int {
		standby := t.standby(k)
		if t.owner(k) == t.self || standby == t.self || standby != nobody && !t.answers(standby, k) {
			if through := r.through(t, k); through != nobody {
				return through
			}
		}
		return standby
	}
}

// through returns the index of a member other than the owner of k's counter that has said that
// it reaches the one that has it; nobody if there is none that answers.
func (r *Router) through(t *table, k ring.Key) int {
	if r.holders == nil {
		return nobody
	}
	for _, id := range r.holders.Reaching(k.Partition(uint32(len(t.routes)))) {
		if i, member := t.view.Index(id); member && i != t.self && i != t.owner(k) && t.answers(i, k) {
			return i
		}
	}
	return nobody
}

// allowCopy lets g be decided from copies where the local shard has no more. What this node
// has itself is none: if it does not decide, it must not.
func (r *Router) allowCopy(g *shard.Group) {
	g.Lend = 0
	g.Provisional = !slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return r.holds(t.Key) })
}

// answerAsStandby answers those groups that this node was asked for as a standby, and that
// have moved as far as the local shard knows: it has them decided by whoever has them, or
// else from its copies, where it may. The rest stays moved.
func (r *Router) answerAsStandby(local Local, questions []question, groups []shard.Group) {
	due := time.Now().Add(min(r.attempt/2, relayPatience)) // the asker waits for an attempt
	for range relayHops {
		r.relay(questions, groups, due, r.direct)
	}
	r.relay(questions, groups, due, r.indirect)
	t := r.table.Load()
	for i := range groups {
		switch g := &groups[i]; {
		case !questions[i].standby:
		case g.Takes[0].Source == shard.Overloaded: // whoever has it is there
			setSource(g, shard.Moved)
		case moved(g) && t.keeps(g):
			forget(g)
			r.allowCopy(g)
			r.promises.decide(local, groups[i:i+1])
		}
	}
}

// direct returns who is said to have g.
func (r *Router) direct(t *table, g *shard.Group) (to int, standby bool) {
	r.movedHere(g)
	to, one := t.routeOf(g)
	if !one {
		return nobody, false
	}
	return to, false
}

// indirect returns who reaches the one that has g, if this node does not and may decide from a
// copy: that decides only if nobody does.
func (r *Router) indirect(t *table, g *shard.Group) (to int, standby bool) {
	k := g.Takes[0].Key
	if !t.keeps(g) {
		return nobody, false
	}
	return r.through(t, k), true
}

// relay has what has moved decided by others, once. Who asks waits meanwhile with all else
// that it has asked, so who is late is not asked again soon.
func (r *Router) relay(questions []question, groups []shard.Group, due time.Time, by func(*table, *shard.Group) (int, bool)) {
	t, now := r.table.Load(), time.Now()
	if t == nil || !now.Before(due) {
		return
	}
	s := newSpread(t)
	defer s.free()
	instant := int64(now.Sub(r.hot.started))
	for i := range groups {
		g := &groups[i]
		if !questions[i].standby || !moved(g) {
			continue
		}
		to, standby := by(t, g)
		if to != nobody && t.peers[to] != nil && t.peers[to].spared.Load() <= instant {
			s.standby = standby
			forget(g)
			s.assign(to, g, nil, nil)
		}
	}
	if s.size() == 0 {
		return
	}
	r.exchange(context.Background(), s, due)
	late := !time.Now().Before(due)
	s.each(func(to *peer, g *shard.Group, _ *part) {
		switch {
		case g.Takes[0].Source == shard.Owner, g.Takes[0].Source == shard.Standby:
			r.metrics.relayed.Inc()
			setSource(g, shard.Standby)
		case undecided(g):
			setSource(g, shard.Moved)
			if late {
				to.spared.Store(instant + int64(probeEvery))
			}
		}
	})
}

func setSource(g *shard.Group, s shard.Source) {
	for i := range g.Takes {
		g.Takes[i].Source = s
	}
}
