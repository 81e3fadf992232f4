package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// maxRounds is how often at most a group is asked again that frees something.
const maxRounds = 3

// spread is how groups are spread over the members. It is used again for others.
type spread struct {
	table    *table
	how      asked         // as what the members are asked
	local    []shard.Group // copies, for the local shard
	from     []*shard.Group
	parts    []*part // beside from, nil for a whole group
	errands  []errand
	lanes    []uint16 // by number: 1 + index of the lane's errand, 0 if it has none
	split    []*split
	stranded []stranded
}

// errand is what is asked on one lane.
type errand struct {
	lane   *lane
	number int // the lane's, in the table
	peer   *peer
	groups []*shard.Group
	hot    []*hotCounter // of those that are to be renewed, or nil, for each group
	parts  []*part       // beside groups, nil for a whole group
	first  uint32        // id
	sent   bool
}

// stranded is a group, or a part of one, for which there is nobody to ask but who may have
// copies of its counters.
type stranded struct {
	group *shard.Group
	part  *part // nil for a whole group
	moved bool  // whether somebody has answered, who did not have them
}

var spreads = sync.Pool{New: func() any { return new(spread) }}

func newSpread(t *table) *spread {
	s := spreads.Get().(*spread)
	s.table = t
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
		clear(e.hot)
		clear(e.parts)
		*e = errand{groups: e.groups[:0], hot: e.hot[:0], parts: e.parts[:0]}
	}
	clear(s.local)
	clear(s.from)
	clear(s.parts)
	clear(s.split)
	clear(s.stranded)
	*s = spread{
		local: s.local[:0], from: s.from[:0], parts: s.parts[:0], errands: s.errands[:0], lanes: s.lanes,
		split: s.split[:0], stranded: s.stranded[:0],
	}
	spreads.Put(s)
}

// size returns how many groups and parts are assigned.
func (s *spread) size() int {
	n := len(s.from)
	for i := range s.errands {
		n += len(s.errands[i].groups)
	}
	return n
}

// each calls f for every group and part that is assigned, with the peer that it is
// assigned to, nil for this node.
func (s *spread) each(f func(to *peer, g *shard.Group, p *part)) {
	for i := range s.errands {
		e := &s.errands[i]
		for j, g := range e.groups {
			f(e.peer, g, e.parts[j])
		}
	}
	for i, g := range s.from {
		f(nil, g, s.parts[i])
	}
}

// isLost reports whether g frees something and was sent to somebody who has not said what became of it: it may be counted, and is
// asked of nobody else, as twice would be too much.
func (s *spread) isLost(g *shard.Group) bool {
	if !undecided(g) || moved(g) || !frees(g) {
		return false
	}
	return slices.ContainsFunc(s.errands, func(e errand) bool { return e.sent && slices.Contains(e.groups, g) })
}

// anyUndecided reports whether something that was asked is not decided.
func (s *spread) anyUndecided() bool {
	found := false
	s.each(func(_ *peer, g *shard.Group, _ *part) { found = found || undecided(g) })
	return found
}

// strand notes that g, or the part p that it is of another, is stranded.
func (s *spread) strand(g *shard.Group, p *part, moved bool) {
	s.stranded = append(s.stranded, stranded{g, p, moved})
}

// split is a group whose counters live on several members, cut into one part per
// member.
type split struct {
	whole *shard.Group
	parts []*part
}

type part struct {
	of    *split
	to    int   // the member that is asked
	lane  *lane // to it, nil for this node
	group shard.Group
	takes []int // indices into of.whole.Takes
}

// decideMany answers several groups, or one that spans members: all parts take at
// once, and if one denies, the others give back.
//
// A bucket cannot give back exactly what has flowed out of it since it was taken, so
// that somebody who is denied elsewhere, over and over, could empty one that others
// share. So a part with buckets only looks at first, and takes once all have room. If
// there are several, and one has lost its room meanwhile, the owners of the others undo the
// take by what they remember of it.
func (r *Router) decideMany(ctx context.Context, t *table, groups []shard.Group) {
	s, now := newSpread(t), time.Now()
	defer s.free()
	for i := range groups {
		r.add(s, &groups[i], now)
	}
	w := walk{due: r.due(ctx, now)}
	w.wait = r.exchange(ctx, s, w.due)
	r.finish(ctx, s, groups, w)
}

// decideRest answers those groups that the member to was asked for and that are undecided. The
// zero due is that of a question that is asked now.
func (r *Router) decideRest(ctx context.Context, t *table, to int, groups []shard.Group, due time.Time) {
	s := newSpread(t)
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
			r.movedHere(g)
		}
		s.assign(to, g, nil, nil)
	}
	r.finish(ctx, s, groups, walk{due: due})
}

// finish answers what is undecided of groups, which s has spread and asked for.
func (r *Router) finish(ctx context.Context, s *spread, groups []shard.Group, w walk) {
	r.pursue(ctx, s, s, w)
	if len(s.split) > 0 {
		r.decideLooked(ctx, s)
	}
	for i := range groups {
		r.settle(s.table, &groups[i])
	}
	for _, w := range s.split {
		r.undo(w)
	}
}

// decideLooked puts together the answers to what was split, and lets those parts take
// that have only looked.
func (r *Router) decideLooked(ctx context.Context, s *spread) {
	second := newSpread(r.table.Load())
	defer second.free()
	for _, w := range s.split {
		w.gather()
		second.addLooked(w)
	}
	if second.size() == 0 {
		return
	}
	w := walk{due: r.due(ctx, time.Now())}
	w.wait = r.exchange(ctx, second, w.due)
	r.pursue(ctx, second, second, w)
	for _, w := range s.split {
		w.gather()
	}
}

// exchange asks all peers first, then the local shard, and then waits for all together.
// It returns how long to wait before unanswered is asked again, 0 if there is no need.
func (r *Router) exchange(ctx context.Context, s *spread, due time.Time) (again time.Duration) {
	if len(s.errands) == 0 {
		return r.askLocal(s, due)
	}
	now := time.Now()
	a := r.newAsk(ctx, now, due)
	if a != nil {
		a.how = s.how
		for i := range s.errands {
			e := &s.errands[i]
			var err error
			if e.first, err = e.lane.enqueue(a, e.groups, e.hot); err != nil {
				e.peer.metrics.refused(err, e.groups)
			}
			e.sent = err == nil
		}
	}
	again = r.askLocal(s, due)
	if a != nil {
		if r.wait(ctx, a) {
			s.giveUp(a)
			<-a.done
		}
		again = max(again, time.Duration(a.again.Load()))
		r.asks.Put(a)
	}
	for i := range s.errands {
		e := &s.errands[i]
		e.peer.metrics.countAnswers(e.groups)
		for j, c := range e.hot {
			if c != nil {
				r.hot.learn(c, e.groups[j], now)
			}
		}
	}
	return again
}

// askLocal returns how long to wait before what was not answered is asked again.
func (r *Router) askLocal(s *spread, due time.Time) (again time.Duration) {
	again = r.decideHere(s.local, due)
	if s.how != asOwner && len(s.local) > 0 {
		if patience := time.Now().Add(r.patience()); patience.Before(due) {
			due = patience
		}
		again = max(again, r.answerAsStandby(r.local, s.local, func(int) asked { return s.how }, due))
	}
	for i, g := range s.from {
		g.Allowed, g.Loan, g.Held = s.local[i].Allowed, s.local[i].Loan, s.local[i].Held
		if moved(g) {
			r.movedHere(g)
		}
	}
	return again
}

func (s *spread) giveUp(a *ask) {
	now := time.Now()
	for i := range s.errands {
		if e := &s.errands[i]; e.sent {
			e.lane.giveUp(a, e.first, now)
		}
	}
}

// add assigns g, or its parts, unless it can be answered from what is known.
func (r *Router) add(s *spread, g *shard.Group, now time.Time) {
	if len(g.Takes) == 0 {
		return
	}
	to, one := s.table.routeOf(g)
	if !one {
		s.cut(s, g, s.table.route)
		return
	}
	var c *hotCounter
	from := fromOwner
	if s.table.peers[to] != nil {
		c, from = r.hot.consult(g, s.table.lane(to, g.Takes[0].Key), now)
	}
	if from != known {
		s.assign(to, g, c, nil)
	}
}

// place assigns what was asked already, the group g or the part p that it is of another, to
// the member to(k) for its counter k. If those have parted meanwhile it is split, and
// belongs to top.
func (s *spread) place(top *spread, g *shard.Group, p *part, to func(ring.Key) int) {
	forget(g)
	first := to(g.Takes[0].Key)
	parted := slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return to(t.Key) != first })
	switch {
	case !parted:
		s.assign(first, g, nil, p)
	case p == nil:
		s.cut(top, g, to)
	default:
		s.cutPart(p, to)
	}
}

// cut assigns the parts of g, which belong to top.
func (s *spread) cut(top *spread, g *shard.Group, to func(ring.Key) int) {
	w := &split{whole: g}
	for i := range g.Takes {
		p := w.part(&w.parts, to(g.Takes[i].Key))
		p.takes = append(p.takes, i)
		p.group.Takes = append(p.group.Takes, g.Takes[i])
	}
	for _, p := range w.parts {
		p.group.Peek = g.Peek || !g.Reset && slices.ContainsFunc(p.group.Takes, leavesLess)
		s.assign(p.to, &p.group, nil, p)
	}
	top.split = append(top.split, w)
}

// cutPart assigns the parts of p, which take its place.
func (s *spread) cutPart(p *part, to func(ring.Key) int) {
	var parts []*part
	for i, t := range p.group.Takes {
		q := p.of.part(&parts, to(t.Key))
		t.Tentative = t.Tentative || !p.group.Peek && leavesLess(t) // another part may be denied yet
		q.takes = append(q.takes, p.takes[i])
		q.group.Takes = append(q.group.Takes, t)
		q.group.Peek = p.group.Peek
	}
	for _, q := range parts {
		s.assign(q.to, &q.group, nil, q)
	}
	p.of.parts = append(slices.DeleteFunc(p.of.parts, func(q *part) bool { return q == p }), parts...)
}

// part returns the one of parts that a member is asked for, if need be a new one of w.
func (w *split) part(parts *[]*part, to int) *part {
	for _, p := range *parts {
		if p.to == to {
			return p
		}
	}
	p := &part{of: w, to: to, group: shard.Group{Reset: w.whole.Reset, LentAt: w.whole.LentAt}}
	*parts = append(*parts, p)
	return p
}

// leavesLess reports whether t, taken and given back, may leave less than there was.
func leavesLess(t shard.Take) bool { return t.Cost > 0 && t.Limit.Algorithm.Drains() }

// addLooked lets those parts take that have only looked so far, if nothing denies their
// group.
func (s *spread) addLooked(w *split) {
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

// nobody is the index of no member.
const nobody = -1

// assign has the member to asked for g, as for a hot counter if c is not nil. If g is a
// part, it is p.
func (s *spread) assign(to int, g *shard.Group, c *hotCounter, p *part) {
	if to == nobody {
		return
	}
	if s.table.peers[to] == nil {
		s.local = append(s.local, *g)
		s.from = append(s.from, g)
		s.parts = append(s.parts, p)
		if p != nil {
			p.to, p.lane = to, nil
		}
		return
	}
	l, number := s.table.numbered(to, g.Takes[0].Key, s.how != asOwner)
	at := s.lanes[number]
	if at == 0 {
		s.errands = slices.Grow(s.errands, 1)[:len(s.errands)+1]
		at = uint16(len(s.errands))
		s.lanes[number] = at
		e := &s.errands[at-1]
		e.lane, e.number, e.peer = l, number, s.table.peers[to]
	}
	e := &s.errands[at-1]
	e.groups, e.hot, e.parts = append(e.groups, g), append(e.hot, c), append(e.parts, p)
	if p != nil {
		p.to, p.lane = to, l
	}
}

// gather puts the parts' answers together.
func (w *split) gather() {
	for _, p := range w.parts {
		for j, index := range p.takes {
			w.whole.Takes[index] = p.group.Takes[j]
		}
	}
}

// undo gives back what the parts of a denied group have counted. A node that dies in
// between can only have counted too much.
func (r *Router) undo(w *split) {
	if w.whole.Allowed || w.whole.Reset || w.whole.LentAt > 0 {
		return
	}
	for _, p := range w.parts {
		if p.group.Allowed { // whoever was asked has said so
			r.giveBack(w.whole, p)
		}
	}
}

func (r *Router) giveBack(whole *shard.Group, p *part) {
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
	case p.lane == nil:
		r.promises.giveBack(r.local, counted)
	case counted[0].Source == shard.Standby || p.lane.giveBack(counted) != nil: // the standby did not count it
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
