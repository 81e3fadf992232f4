package cluster

import (
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

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

// hopOf returns the span of the hop on which g was asked for, nil if it has none.
func (s *scatter) hopOf(asked *shard.Group) trace.Span {
	for i := range s.dispatches {
		for _, g := range s.dispatches[i].groups {
			if g == asked {
				return s.dispatches[i].hop
			}
		}
	}
	return nil
}
