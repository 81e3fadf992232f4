package cluster

import (
	"context"
	"time"

	"github.com/weirlimit/weir/shard"
)

// spread is how the groups of one call are spread over the members.
type spread struct {
	local  []shard.Group // copies, for the local shard
	from   []*shard.Group
	remote map[*lane]*errand
	split  []split
}

// errand is what is asked on one lane.
type errand struct {
	peer   *peer
	groups []*shard.Group
	first  uint32 // id
	sent   bool
}

// split is a group whose counters live on several members, cut into one part per
// member.
type split struct {
	whole *shard.Group
	parts []part
}

type part struct {
	owner int
	group shard.Group
	takes []int // indices into whole.Takes
}

// decideMany answers several groups, or one that spans members: it asks all peers
// first, then the local shard, and then waits for all together.
func (r *Router) decideMany(ctx context.Context, t *table, groups []shard.Group) {
	s := spread{remote: make(map[*lane]*errand)}
	for i := range groups {
		s.add(t, &groups[i])
	}
	a := r.newAsk(ctx)
	if a != nil {
		for l, e := range s.remote {
			var err error
			if e.first, err = l.enqueue(a, e.groups); err != nil {
				e.peer.metrics.count(err, len(e.groups))
			}
			e.sent = err == nil
		}
	}
	r.local.Decide(s.local)
	for i, g := range s.from {
		copy(g.Takes, s.local[i].Takes)
		g.Allowed = s.local[i].Allowed
	}
	if a != nil {
		if r.wait(ctx, a) {
			s.giveUp(a)
			<-a.done
		}
		r.asks.Put(a)
	}
	for _, e := range s.remote {
		e.peer.metrics.countAnswers(e.groups)
	}
	for i := range s.split {
		r.join(t, &s.split[i])
	}
}

func (s *spread) giveUp(a *ask) {
	now := time.Now()
	for l, e := range s.remote {
		if e.sent {
			e.peer.metrics.late.Add(float64(l.giveUp(a, e.first, len(e.groups), now)))
		}
	}
}

func (s *spread) add(t *table, g *shard.Group) {
	g.Allowed = true // until somebody says otherwise
	if len(g.Takes) == 0 {
		return
	}
	if owner, all := t.owner(g); all {
		s.assign(t, owner, g)
		return
	}
	w := split{whole: g}
	for i := range g.Takes {
		owner := t.view.Ring.Owner(g.Takes[i].Key.Partition(t.view.Ring.Partitions()))
		p := w.part(owner, g.Peek)
		p.takes = append(p.takes, i)
		p.group.Takes = append(p.group.Takes, g.Takes[i])
	}
	for i := range w.parts {
		s.assign(t, w.parts[i].owner, &w.parts[i].group)
	}
	s.split = append(s.split, w)
}

func (w *split) part(owner int, peek bool) *part {
	for i := range w.parts {
		if w.parts[i].owner == owner {
			return &w.parts[i]
		}
	}
	w.parts = append(w.parts, part{owner: owner, group: shard.Group{Peek: peek, Allowed: true}})
	return &w.parts[len(w.parts)-1]
}

func (s *spread) assign(t *table, owner int, g *shard.Group) {
	if t.peers[owner] == nil {
		s.local = append(s.local, *g)
		s.from = append(s.from, g)
		return
	}
	l := t.lane(owner, g)
	e := s.remote[l]
	if e == nil {
		e = &errand{peer: t.peers[owner]}
		s.remote[l] = e
	}
	e.groups = append(e.groups, g)
}

// join puts the parts' answers together. If one part was denied, the others give
// back what they have counted. A node that dies in between can only have counted
// too much.
func (r *Router) join(t *table, w *split) {
	w.whole.Allowed = true
	for i := range w.parts {
		w.whole.Allowed = w.whole.Allowed && w.parts[i].group.Allowed
	}
	for i := range w.parts {
		p := &w.parts[i]
		if !w.whole.Allowed && p.group.Allowed && !p.group.Peek && p.answered() {
			r.giveBack(t, p)
		}
		for j, index := range p.takes {
			w.whole.Takes[index] = p.group.Takes[j]
		}
	}
}

func (p *part) answered() bool { return p.group.Takes[0].Source != shard.Unanswered }

func (r *Router) giveBack(t *table, p *part) {
	if t.peers[p.owner] == nil {
		r.local.Return(p.group.Takes)
	} else if err := t.lane(p.owner, &p.group).giveBack(p.group.Takes); err != nil {
		r.metrics.lostReturns.Inc()
	}
	for i := range p.group.Takes { // the answers are those to a request that was not made
		take := &p.group.Takes[i]
		take.Decision.Remaining = min(take.Limit.Capacity(), take.Decision.Remaining+take.Cost)
	}
}
