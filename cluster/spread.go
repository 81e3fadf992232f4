package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// spread is how the groups of one call are spread over the members. It is used again for
// others.
type spread struct {
	local   []shard.Group // copies, for the local shard
	from    []*shard.Group
	errands []errand
	lanes   []uint16 // by number: 1 + index of the lane's errand, 0 if it has none
	split   []split
}

// errand is what is asked on one lane.
type errand struct {
	lane   *lane
	number int // the lane's, in the table
	peer   *peer
	groups []*shard.Group
	first  uint32 // id
	sent   bool
}

var spreads = sync.Pool{New: func() any { return new(spread) }}

func newSpread(t *table) *spread {
	s := spreads.Get().(*spread)
	if n := len(t.peers) * maxLanes; len(s.lanes) < n {
		s.lanes = make([]uint16, n)
	}
	return s
}

// free keeps the memory, and nothing of what it held.
func (s *spread) free() {
	for i := range s.errands {
		e := &s.errands[i]
		s.lanes[e.number] = 0
		clear(e.groups)
		*e = errand{groups: e.groups[:0]}
	}
	clear(s.local)
	clear(s.from)
	clear(s.split)
	s.local, s.from, s.errands, s.split = s.local[:0], s.from[:0], s.errands[:0], s.split[:0]
	spreads.Put(s)
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

// decideMany answers several groups, or one that spans members: all parts take at
// once, and if one denies, the others give back.
//
// A bucket cannot give back exactly what has flowed out of it since it was taken, so
// that somebody who is denied elsewhere, over and over, could empty one that others
// share. So a part with buckets only looks at first, and takes once all have room.
func (r *Router) decideMany(ctx context.Context, t *table, groups []shard.Group) {
	s := newSpread(t)
	defer s.free()
	for i := range groups {
		s.add(t, &groups[i])
	}
	r.exchange(ctx, s)
	if len(s.split) > 0 {
		r.decideLooked(ctx, t, s)
	}
	for i := range groups {
		r.settle(t, &groups[i])
	}
	for i := range s.split {
		r.undo(t, &s.split[i])
	}
}

// decideLooked puts together the answers to what was split, and lets those parts take
// that have only looked.
func (r *Router) decideLooked(ctx context.Context, t *table, s *spread) {
	second := newSpread(t)
	defer second.free()
	for i := range s.split {
		s.split[i].gather()
		second.addLooked(t, &s.split[i])
	}
	if len(second.errands)+len(second.local) == 0 {
		return
	}
	r.exchange(ctx, second)
	for i := range s.split {
		s.split[i].gather()
	}
}

// exchange asks all peers first, then the local shard, and then waits for all together.
func (r *Router) exchange(ctx context.Context, s *spread) {
	if len(s.errands) == 0 {
		r.askLocal(s)
		return
	}
	a := r.newAsk(ctx)
	if a != nil {
		for i := range s.errands {
			e := &s.errands[i]
			var err error
			if e.first, err = e.lane.enqueue(a, e.groups); err != nil {
				e.peer.metrics.refused(err, e.groups)
			}
			e.sent = err == nil
		}
	}
	r.askLocal(s)
	if a != nil {
		if r.wait(ctx, a) {
			s.giveUp(a)
			<-a.done
		}
		r.asks.Put(a)
	}
	for i := range s.errands {
		s.errands[i].peer.metrics.countAnswers(s.errands[i].groups)
	}
}

func (r *Router) askLocal(s *spread) {
	r.local.Decide(s.local)
	for i, g := range s.from {
		g.Allowed = s.local[i].Allowed
	}
}

func (s *spread) giveUp(a *ask) {
	now := time.Now()
	for i := range s.errands {
		if e := &s.errands[i]; e.sent {
			e.peer.metrics.late.Add(float64(e.lane.giveUp(a, e.first, now)))
		}
	}
}

func (s *spread) add(t *table, g *shard.Group) {
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
		p := w.part(owner)
		p.takes = append(p.takes, i)
		p.group.Takes = append(p.group.Takes, g.Takes[i])
	}
	for i := range w.parts {
		p := &w.parts[i]
		p.group.Peek = g.Peek || !g.Reset && slices.ContainsFunc(p.group.Takes, leavesLess)
		s.assign(t, p.owner, &p.group)
	}
	s.split = append(s.split, w)
}

// leavesLess reports whether t, taken and given back, may leave less than there was.
func leavesLess(t shard.Take) bool { return t.Cost > 0 && t.Limit.Algorithm.Drains() }

// addLooked lets those parts take that have only looked so far, if nothing denies their
// group.
func (s *spread) addLooked(t *table, w *split) {
	if w.whole.Peek || slices.ContainsFunc(w.whole.Takes, func(t shard.Take) bool { return !t.Shadow && denies(&t) }) {
		return
	}
	for i := range w.parts {
		if p := &w.parts[i]; p.group.Peek {
			p.group.Peek = false
			for j := range p.group.Takes {
				p.group.Takes[j].Decision, p.group.Takes[j].Source = algorithms.Decision{}, shard.Unanswered
			}
			s.assign(t, p.owner, &p.group)
		}
	}
}

func (w *split) part(owner int) *part {
	for i := range w.parts {
		if w.parts[i].owner == owner {
			return &w.parts[i]
		}
	}
	w.parts = append(w.parts, part{owner: owner, group: shard.Group{Reset: w.whole.Reset}})
	return &w.parts[len(w.parts)-1]
}

func (s *spread) assign(t *table, owner int, g *shard.Group) {
	if t.peers[owner] == nil {
		s.local = append(s.local, *g)
		s.from = append(s.from, g)
		return
	}
	l, number := t.numbered(owner, g)
	at := s.lanes[number]
	if at == 0 {
		s.errands = slices.Grow(s.errands, 1)[:len(s.errands)+1]
		at = uint16(len(s.errands))
		s.lanes[number] = at
		e := &s.errands[at-1]
		e.lane, e.number, e.peer = l, number, t.peers[owner]
	}
	e := &s.errands[at-1]
	e.groups = append(e.groups, g)
}

// gather puts the parts' answers together.
func (w *split) gather() {
	for i := range w.parts {
		p := &w.parts[i]
		for j, index := range p.takes {
			w.whole.Takes[index] = p.group.Takes[j]
		}
	}
}

// undo gives back what the parts of a denied group have counted. A node that dies in
// between can only have counted too much.
func (r *Router) undo(t *table, w *split) {
	if w.whole.Allowed || w.whole.Reset {
		return
	}
	for i := range w.parts {
		if p := &w.parts[i]; p.group.Allowed { // its owner has said so
			r.giveBack(t, w.whole, p)
		}
	}
}

func (r *Router) giveBack(t *table, whole *shard.Group, p *part) {
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
	if t.peers[p.owner] == nil {
		r.local.Return(counted)
	} else if err := t.lane(p.owner, &p.group).giveBack(counted); err != nil {
		r.metrics.lostReturns.Inc()
	}
}

// isToUndo reports whether t has changed its counter: a shadow take may have been
// denied. A refund that left nothing used may have been of more than there was, and to
// take all of it again would use up what nobody has taken.
func isToUndo(t *shard.Take) bool {
	switch {
	case !t.Decision.Allowed || t.Cost == 0:
		return false
	case t.Cost < 0:
		return t.Decision.Remaining < t.Limit.Capacity()
	}
	return true
}

// undone is the answer to t as if it had only looked. What had to wait for its turn
// leaves no room behind that this node could know of.
func undone(t *shard.Take) algorithms.Decision {
	d := t.Decision
	if d.Delay == 0 {
		d.Remaining = max(0, min(t.Limit.Capacity(), d.Remaining+t.Cost))
	}
	d.Delay = 0
	return d
}
