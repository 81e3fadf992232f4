package cluster

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// decideMany answers several groups, or one that spans members: all parts take at
// once, and if one denies, the others give back.
//
// A bucket cannot give back exactly what has flowed out of it since tokens were taken. A caller that
// is denied elsewhere, over and over, could therefore empty a bucket that others share. So a part
// with buckets only looks at first, and takes once all parts have room. If there are several such
// parts, and one has lost its room meanwhile, the owners of the others undo their takes exactly, as
// they remember them. If a limit is likely full, all parts without such a limit only look at first:
// their takes would deny others meanwhile.
func (r *Router) decideMany(ctx context.Context, t *routingTable, groups []shard.Group) {
	s, now := newScatter(r, t), time.Now()
	defer s.free()
	for i := range groups {
		s.add(&groups[i], now)
	}
	w := walk{top: s, due: r.due(ctx, now)}
	w.wait = s.exchange(ctx, w.due)
	w.finish(ctx, groups)
}

// decideRest answers those groups that the member to was asked for and that are undecided. The
// zero due is that of a request that is asked now. The hop is that of the one group, nil if it has none.
func (r *Router) decideRest(ctx context.Context, t *routingTable, to int, groups []shard.Group, due time.Time, hop trace.Span) {
	s := newScatter(r, t)
	defer s.free()
	if due.IsZero() {
		due = r.due(ctx, time.Now())
	}
	for i := range groups {
		g := &groups[i]
		if !undecided(g) {
			continue
		}
		if t.peers[to] == nil {
			r.table.Load().redirectedHere(g)
		}
		s.assign(to, g, nil, nil)
	}
	w := walk{top: s, due: due, hop: hop}
	w.finish(ctx, groups)
}

// finish answers what is undecided of groups, which the walk's top has spread and asked for.
func (w *walk) finish(ctx context.Context, groups []shard.Group) {
	s := w.top
	w.pursue(ctx)
	if len(s.split) > 0 {
		s.decideLooked(ctx)
	}
	for i := range groups {
		s.router.applyPolicies(s.table, &groups[i])
	}
	for _, w := range s.split {
		s.learnFull(w)
		if w.whole.Allowed {
			s.keep(w)
		} else {
			s.undo(w)
		}
	}
}

// learnFull records which limits of w are full.
func (s *scatter) learnFull(w *split) {
	now := time.Now()
	for i := range w.whole.Takes {
		s.table.full.learn(&w.whole.Takes[i], now)
	}
}

// decideLooked puts together the answers to what was split, and lets those parts take
// that have only looked.
func (s *scatter) decideLooked(ctx context.Context) {
	second := newScatter(s.router, s.router.table.Load())
	defer second.free()
	for _, w := range s.split {
		w.collect()
		second.addLooked(w)
	}
	if second.size() == 0 {
		return
	}
	w := walk{top: second, due: s.router.due(ctx, time.Now())}
	w.wait = second.exchange(ctx, w.due)
	w.pursue(ctx)
	for _, w := range s.split {
		w.collect()
	}
}

// addLooked lets those parts take that have only looked so far, if nothing denies their
// group.
func (s *scatter) addLooked(w *split) {
	if w.whole.Peek || slices.ContainsFunc(w.whole.Takes, func(t shard.Take) bool { return !t.Shadow && denies(&t) }) {
		return
	}
	looked := 0
	for _, p := range w.parts {
		if p.group.Peek {
			looked++
		}
	}
	for _, p := range slices.Clone(w.parts) {
		if !p.group.Peek {
			continue
		}
		p.group.Peek = false
		for j := range p.group.Takes {
			t := &p.group.Takes[j]
			t.Decision = algorithms.Decision{}
			t.Tentative = looked > 1 // another part may be denied yet
		}
		s.place(s, &p.group, p, s.table.route)
	}
}

// undo gives back what the parts of a denied group have counted. A node that dies in
// between can only have counted too much.
func (s *scatter) undo(w *split) {
	if w.whole.Reset || w.whole.LentAt > 0 {
		return
	}
	for _, p := range w.parts {
		if p.group.Allowed { // the node that was asked has said so
			s.giveBack(w.whole, p)
		}
	}
}

func (s *scatter) giveBack(whole *shard.Group, p *part) {
	var counted []shard.Take
	for j, index := range p.takes {
		take := &p.group.Takes[j]
		if isToUndo(take) {
			counted = append(counted, *take)
			whole.Takes[index].Decision = undone(take)
		}
	}
	if len(counted) == 0 || p.group.Peek { // a look has counted nothing
		return
	}
	switch {
	case p.group.By != 0:
		s.router.own.giveBackTo(p.group.By, p.conn, counted)
	case p.conn == nil:
		s.router.own.giveBack(counted)
	case p.conn.giveBack(counted, 0) != nil:
		s.router.metrics.lostReturns.Inc()
	}
}

// undone is the answer to t as if it had only looked. What had to wait for its turn
// leaves no room behind that this node could know of.
func undone(t *shard.Take) algorithms.Decision {
	d := t.Decision
	if d.Delay == 0 {
		d.Remaining = max(0, min(t.Limit.Room(), d.Remaining+t.Cost))
	}
	d.Delay = 0
	return d
}

// add assigns g, or its parts, unless it can be answered from what is known.
func (s *scatter) add(g *shard.Group, now time.Time) {
	if len(g.Takes) == 0 {
		return
	}
	to, one := s.table.routeOf(g)
	if !one {
		s.cut(s, g, s.table.route)
		return
	}
	var c *hotCounter
	answered := false
	if s.table.peers[to] != nil {
		c, answered = s.router.hot.consult(g, s.table.conn(to, g.Takes[0].Key), now)
	}
	if !answered {
		s.assign(to, g, c, nil)
	}
}

// keep tells the owners that what the parts of w have taken tentatively stays, because w is allowed. If there is ample
// room left, that may wait for the next request.
func (s *scatter) keep(w *split) {
	for _, p := range w.parts {
		s.stays = s.stays[:0]
		ample := true
		for i := range p.group.Takes {
			t := &p.group.Takes[i]
			if t.Tentative && t.Decision.Allowed && t.Source == shard.Owner && t.IsScarce() {
				ample = ample && t.Decision.Remaining >= max(ampleShare*t.Cost, t.Limit.Capacity()/ampleShare)
				s.stays = append(s.stays, *t)
			}
		}
		switch {
		case len(s.stays) == 0:
		case p.conn == nil:
			s.router.own.local.Keep(s.stays)
		default:
			p.conn.keep(s.stays, ample)
		}
	}
}
