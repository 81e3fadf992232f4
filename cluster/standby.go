package cluster

import (
	"context"
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

// successor returns the index of the member that is asked for k's counter if nobody has it
// who is reached: the owner, which is about to get it, or else its standby, also if the owner knows of nothing.
func (t *table) successor(k ring.Key) int {
	owner := t.owner(k)
	if t.answers(owner, k) && !t.isVacant(k) {
		return owner
	}
	return t.standby(k)
}

// bystander returns the index of a member that answers and is neither the owner of k's counter nor
// its standby nor this node; nobody if there is none.
func (t *table) bystander(k ring.Key) int {
	first, owner, standby := int(k.Partition(uint32(len(t.routes)))), t.owner(k), t.standby(k)
	for i := range t.peers {
		m := (first + i) % len(t.peers)
		if m != t.self && m != owner && m != standby && t.answers(m, k) {
			return m
		}
	}
	return nobody
}

// keeps reports whether this node may decide g from copies: it is the owner or the standby
// of all counters.
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

// askStandbys asks for what of top is stranded. Where the standby does not answer either, or
// knows of nothing, somebody else may reach the owner.
func (r *Router) askStandbys(ctx context.Context, top *spread) {
	s := newSpread(r.table.Load())
	defer s.free()
	for _, left := range top.stranded {
		to := s.table.standby
		if left.moved {
			to = s.table.successor
		}
		s.place(top, left.group, left.part, to)
	}
	r.askAsStandbys(ctx, s)
	others := newSpread(s.table)
	defer others.free()
	s.each(func(_ *peer, g *shard.Group, p *part) {
		if undecided(g) {
			others.place(top, g, p, s.table.bystander)
		}
	})
	r.askAsStandbys(ctx, others)
	others.each(func(_ *peer, g *shard.Group, _ *part) {
		if undecided(g) {
			forget(g)
		}
	})
}

// askAsStandbys asks those that s is assigned to as if they were standbys.
func (r *Router) askAsStandbys(ctx context.Context, s *spread) {
	if s.size() == 0 {
		return
	}
	s.standby = true
	r.metrics.toStandby.Add(float64(s.size()))
	r.exchange(ctx, s, r.due(ctx, time.Now()))
}

// allowCopy lets g be decided from copies where the local shard has no more.
func allowCopy(g *shard.Group) {
	g.Provisional, g.Lend = true, 0
}

// answerAsStandby answers those groups that this node was asked for as a standby, and that
// have moved as far as the local shard knows: it has them decided by whoever has them, or
// else from its copies, where it may. The rest stays moved.
func (r *Router) answerAsStandby(local Local, questions []question, groups []shard.Group) {
	due := time.Now().Add(min(r.attempt/2, relayPatience)) // the asker waits for an attempt
	for range relayHops {
		r.relay(questions, groups, due)
	}
	t := r.table.Load()
	for i := range groups {
		switch g := &groups[i]; {
		case !questions[i].standby:
		case g.Takes[0].Source == shard.Overloaded: // whoever has it is there
			mark(g, shard.Moved)
		case moved(g) && t.keeps(g):
			forget(g)
			allowCopy(g)
			r.promises.decide(local, groups[i:i+1])
		}
	}
}

// relay has what has moved decided by those that are said to have it, once. Who asks waits
// meanwhile with all else that it has asked, so who is late is not asked again soon.
func (r *Router) relay(questions []question, groups []shard.Group, due time.Time) {
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
		r.movedHere(g)
		if to, one := t.routeOf(g); one && t.reaches(g) && t.peers[to] != nil && t.peers[to].spared.Load() <= instant {
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
		case g.Takes[0].Source == shard.Owner:
			r.metrics.relayed.Inc()
			mark(g, shard.Standby)
		case undecided(g):
			mark(g, shard.Moved)
			if late {
				to.spared.Store(instant + int64(probeEvery))
			}
		}
	})
}

func mark(g *shard.Group, s shard.Source) {
	for i := range g.Takes {
		g.Takes[i].Source = s
	}
}
