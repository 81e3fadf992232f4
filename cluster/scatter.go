package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/shard"
)

// maxRounds is how often at most a group is asked again that frees something.
const maxRounds = 3

// scatter is how groups are split over the members. It is used again for others.
type scatter struct {
	router     *Router
	table      *routingTable
	how        role          // as what the members are asked
	local      []shard.Group // copies, for the local shard
	from       []*shard.Group
	parts      []*part // parallel to from, nil for a whole group
	dispatches []dispatch
	conns      []uint16 // by number: 1 + index of the conn's dispatch, 0 if it has none
	split      []*split
	orphans    []orphan
	stays      []shard.Take // what keep tells one member
}

// dispatch is what is asked on one conn.
type dispatch struct {
	conn   *conn
	number int // the conn's, in the table
	peer   *peer
	groups []*shard.Group
	hot    []*hotCounter // of those that are to be renewed, or nil, for each group
	parts  []*part       // parallel to groups, nil for a whole group
	first  uint32        // id
	sent   bool
	hop    trace.Span // nil unless the check is traced
}

// orphan is a group, or a part of one, for which only members are left that may have copies of its
// counters.
type orphan struct {
	group      *shard.Group
	part       *part // nil for a whole group
	redirected bool  // whether a node has answered that did not have them
	expected   bool  // whether the owner has answered that it does not have them: it is about to, or finds a copy
}

var scatters = sync.Pool{New: func() any { return new(scatter) }}

func newScatter(r *Router, t *routingTable) *scatter {
	s := scatters.Get().(*scatter)
	s.router, s.table = r, t
	if n := len(t.peers) * maxConns; len(s.conns) < n {
		s.conns = make([]uint16, n)
	}
	return s
}

// free keeps the memory, and nothing of what it held.
func (s *scatter) free() {
	for i := range s.dispatches {
		e := &s.dispatches[i]
		s.conns[e.number] = 0
		clear(e.groups)
		clear(e.hot)
		clear(e.parts)
		*e = dispatch{groups: e.groups[:0], hot: e.hot[:0], parts: e.parts[:0]}
	}
	clear(s.local)
	clear(s.from)
	clear(s.parts)
	clear(s.orphans)
	for _, w := range s.split {
		w.free()
	}
	*s = scatter{
		local: s.local[:0], from: s.from[:0], parts: s.parts[:0], dispatches: s.dispatches[:0], conns: s.conns,
		split: s.split[:0], orphans: s.orphans[:0], stays: s.stays[:0],
	}
	scatters.Put(s)
}

// size returns how many groups and parts are assigned.
func (s *scatter) size() int {
	n := len(s.from)
	for i := range s.dispatches {
		n += len(s.dispatches[i].groups)
	}
	return n
}

// each calls f for every group and part that is assigned, with the peer that it is
// assigned to, nil for this node.
func (s *scatter) each(f func(to *peer, g *shard.Group, p *part)) {
	for i := range s.dispatches {
		e := &s.dispatches[i]
		for j, g := range e.groups {
			f(e.peer, g, e.parts[j])
		}
	}
	for i, g := range s.from {
		f(nil, g, s.parts[i])
	}
}

// isLost reports whether g frees something and was sent to a node that has not reported a result. It may be
// counted, so it is sent to no other node: to count it twice would free too much.
func (s *scatter) isLost(g *shard.Group) bool {
	if !undecided(g) || redirected(g) || !frees(g) {
		return false
	}
	return slices.ContainsFunc(s.dispatches, func(e dispatch) bool { return e.sent && slices.Contains(e.groups, g) })
}

// anyUndecided reports whether something that was asked is not decided.
func (s *scatter) anyUndecided() bool {
	found := false
	s.each(func(_ *peer, g *shard.Group, _ *part) { found = found || undecided(g) })
	return found
}

// addOrphan records that g, or the part p that it is of another, is an orphan.
func (s *scatter) addOrphan(g *shard.Group, p *part, redirected bool) {
	s.orphans = append(s.orphans, orphan{group: g, part: p, redirected: redirected})
}

// split is a group whose counters live on several members, cut into one part per
// member, or more where a part would have more than maxTakes.
type split struct {
	whole *shard.Group
	parts []*part
}

type part struct {
	of    *split
	to    int   // the member that is asked
	conn  *conn // to it, nil for this node
	group shard.Group
	takes []int // indices into of.whole.Takes
}

// newSplit adds the split of g, in the memory of an earlier one if there is one.
func (s *scatter) newSplit(g *shard.Group) *split {
	n := len(s.split)
	s.split = slices.Grow(s.split, 1)[:n+1]
	if s.split[n] == nil {
		s.split[n] = new(split)
	}
	s.split[n].whole = g
	return s.split[n]
}

// free keeps the memory of w and of its parts. Their takes are overwritten by the next ones.
func (w *split) free() {
	for _, p := range w.parts {
		p.of, p.conn = nil, nil
	}
	w.whole, w.parts = nil, w.parts[:0]
}

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

// exchange asks all peers first, then the local shard, and then waits for all together.
// It returns how long to wait before unanswered is asked again, 0 if there is no need.
func (s *scatter) exchange(ctx context.Context, due time.Time) (again time.Duration) {
	if len(s.dispatches) == 0 {
		return s.decideLocal(ctx, due)
	}
	r, now := s.router, time.Now()
	a := r.newCall(ctx, now, due)
	if a != nil {
		a.how = s.how
		for i := range s.dispatches {
			e := &s.dispatches[i]
			e.hop = r.startHop(ctx, e.peer.member, s.how)
			a.span = contextOf(e.hop)
			var err error
			if e.first, err = e.conn.enqueue(a, e.groups, e.hot); err != nil {
				e.peer.metrics.refused(err, e.groups)
			}
			e.sent = err == nil
		}
	}
	again = s.decideLocal(ctx, due)
	if a != nil {
		if r.wait(ctx, a) {
			s.giveUp(a)
			<-a.done
		}
		again = max(again, time.Duration(a.again.Load()))
		r.calls.Put(a)
	}
	for i := range s.dispatches {
		e := &s.dispatches[i]
		e.peer.metrics.countAnswers(e.groups)
		endHop(e.hop, e.groups)
		for j, c := range e.hot {
			r.hot.learn(c, e.groups[j], e.conn, now)
		}
	}
	return again
}

// decideLocal returns how long to wait before what was not answered is asked again.
func (s *scatter) decideLocal(ctx context.Context, due time.Time) (again time.Duration) {
	r := s.router
	again = r.own.decideHere(s.local, due)
	if s.how != asOwner && len(s.local) > 0 {
		if patience := time.Now().Add(r.own.patience()); patience.Before(due) {
			due = patience
		}
		again = max(again, r.own.decideCopies(ctx, s.local, s.how, due))
	}
	for i, g := range s.from {
		g.Allowed, g.TokenLease, g.Deferred, g.By = s.local[i].Allowed, s.local[i].TokenLease, s.local[i].Deferred, s.local[i].By
		if redirected(g) {
			r.table.Load().redirectedHere(g)
		}
	}
	return again
}

func (s *scatter) giveUp(a *call) {
	now := time.Now()
	for i := range s.dispatches {
		if e := &s.dispatches[i]; e.sent {
			e.conn.giveUp(a, e.first, now)
		}
	}
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

// place assigns what was asked already, the group g or the part p that it is of another, to
// the member to(k) for its counter k. If those have parted meanwhile it is split, and
// belongs to top.
func (s *scatter) place(top *scatter, g *shard.Group, p *part, to func(ring.Key) int) {
	forget(g)
	first := to(g.Takes[0].Key)
	parted := len(g.Takes) > maxTakes || slices.ContainsFunc(g.Takes, func(t shard.Take) bool { return to(t.Key) != first })
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
func (s *scatter) cut(top *scatter, g *shard.Group, to func(ring.Key) int) {
	w := top.newSplit(g)
	for i := range g.Takes {
		p := w.part(&w.parts, to(g.Takes[i].Key))
		p.takes = append(p.takes, i)
		p.group.Takes = append(p.group.Takes, g.Takes[i])
	}
	counts := !g.Peek && !g.Reset && g.LentAt == 0
	full := counts && s.isLikelyFull(g.Takes)
	for _, p := range w.parts {
		p.group.Peek = g.Peek || !g.Reset && slices.ContainsFunc(p.group.Takes, leavesLess) || full && !s.isLikelyFull(p.group.Takes)
		for i := range p.group.Takes {
			t := &p.group.Takes[i]
			t.Tentative = counts && !p.group.Peek && t.Cost > 0 // another part may be denied yet
		}
		s.assign(p.to, &p.group, nil, p)
	}
}

// isLikelyFull reports whether one of takes is likely denied.
func (s *scatter) isLikelyFull(takes []shard.Take) bool {
	now := time.Now()
	return slices.ContainsFunc(takes, func(t shard.Take) bool {
		return t.Cost > 0 && !t.Shadow && s.table.full.likely(t.Key, now)
	})
}

// cutPart assigns the parts of p, which take its place.
func (s *scatter) cutPart(p *part, to func(ring.Key) int) {
	var parts []*part
	for i, t := range p.group.Takes {
		q := p.of.part(&parts, to(t.Key))
		t.Tentative = t.Tentative || !p.group.Peek && t.Cost > 0 // another part may be denied yet
		q.takes = append(q.takes, p.takes[i])
		q.group.Takes = append(q.group.Takes, t)
		q.group.Peek = p.group.Peek
	}
	for _, q := range parts {
		s.assign(q.to, &q.group, nil, q)
	}
	p.of.parts = append(slices.DeleteFunc(p.of.parts, func(q *part) bool { return q == p }), parts...)
}

// part returns the one of parts that a member is asked for and that has room, if need be a new one of w.
func (w *split) part(parts *[]*part, to int) *part {
	for _, p := range *parts {
		if p.to == to && len(p.takes) < maxTakes {
			return p
		}
	}
	n := len(*parts)
	*parts = slices.Grow(*parts, 1)[:n+1]
	p := (*parts)[n]
	if p == nil {
		p = new(part)
		(*parts)[n] = p
	}
	*p = part{of: w, to: to, takes: p.takes[:0], group: shard.Group{Takes: p.group.Takes[:0], Reset: w.whole.Reset, LentAt: w.whole.LentAt}}
	return p
}

// leavesLess reports whether t, taken and given back, may leave less than there was.
func leavesLess(t shard.Take) bool { return t.Cost > 0 && t.Limit.Algorithm.Drains() }

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

// noMember is an index that no member has.
const noMember = -1

// assign has the member to asked for g, as for a hot counter if c is not nil. If g is a
// part, it is p.
func (s *scatter) assign(to int, g *shard.Group, c *hotCounter, p *part) {
	if to == noMember {
		return
	}
	if s.table.peers[to] == nil {
		s.local = append(s.local, *g)
		s.from = append(s.from, g)
		s.parts = append(s.parts, p)
		if p != nil {
			p.to, p.conn = to, nil
		}
		return
	}
	conn, number := s.table.numbered(to, g.Takes[0].Key, s.how != asOwner)
	at := s.conns[number]
	if at == 0 {
		s.dispatches = slices.Grow(s.dispatches, 1)[:len(s.dispatches)+1]
		at = uint16(len(s.dispatches))
		s.conns[number] = at
		e := &s.dispatches[at-1]
		e.conn, e.number, e.peer = conn, number, s.table.peers[to]
	}
	e := &s.dispatches[at-1]
	e.groups, e.hot, e.parts = append(e.groups, g), append(e.hot, c), append(e.parts, p)
	if p != nil {
		p.to, p.conn = to, conn
	}
}

// collect puts the parts' answers together.
func (w *split) collect() {
	for _, p := range w.parts {
		for j, index := range p.takes {
			w.whole.Takes[index] = p.group.Takes[j]
		}
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

// isToUndo reports whether t has changed its counter: a shadow take may have been denied. A refund that left
// nothing used may have been of more than was used. To take all of it again would then use up tokens that no
// check has taken.
func isToUndo(t *shard.Take) bool {
	switch {
	case !t.Decision.Allowed || t.Cost == 0:
		return false
	case t.Cost < 0:
		return t.Decision.Remaining < t.Limit.Room()
	}
	return true
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
