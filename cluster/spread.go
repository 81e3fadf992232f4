package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/shard"
)

// maxRounds is how often at most a group is asked again that frees something.
const maxRounds = 3

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
	hot    []*hotCounter // of those that are to be renewed, or nil, for each group
	first  uint32        // id
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
		clear(e.hot)
		*e = errand{groups: e.groups[:0], hot: e.hot[:0]}
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
// share. So a part with buckets only looks at first, and takes once all have room. If
// there are several, and one has lost its room meanwhile, the owners of the others undo the
// take by what they remember of it.
func (r *Router) decideMany(ctx context.Context, t *table, groups []shard.Group) {
	s, now := newSpread(t), time.Now()
	defer s.free()
	for i := range groups {
		r.add(s, t, &groups[i], now)
	}
	r.exchangeAll(ctx, t, s)
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

// exchangeAll asks, and asks again for what has to wait until nobody remembers a denial.
func (r *Router) exchangeAll(ctx context.Context, t *table, s *spread) {
	wait := r.exchange(ctx, s)
	for round := 0; wait > 0 && round < maxRounds; round++ {
		r.metrics.waits.Inc()
		pause(ctx, wait)
		again := newSpread(t)
		again.addUnanswered(t, s)
		wait = r.exchange(ctx, again)
		again.free()
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, wait time.Duration) {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// addUnanswered assigns what of another spread frees something and was not answered.
func (s *spread) addUnanswered(t *table, of *spread) {
	add := func(g *shard.Group) {
		if owner, _ := t.owner(g); frees(g) && g.Takes[0].Source == shard.Unanswered {
			s.assign(t, owner, g, nil)
		}
	}
	for _, g := range of.from {
		add(g)
	}
	for i := range of.errands {
		for _, g := range of.errands[i].groups {
			add(g)
		}
	}
}

// exchange asks all peers first, then the local shard, and then waits for all together.
// It returns how long to wait before unanswered is asked again, 0 if there is no need.
func (r *Router) exchange(ctx context.Context, s *spread) (again time.Duration) {
	if len(s.errands) == 0 {
		return r.askLocal(s)
	}
	now := time.Now()
	a := r.newAsk(ctx, now)
	if a != nil {
		for i := range s.errands {
			e := &s.errands[i]
			var err error
			if e.first, err = e.lane.enqueue(a, e.groups, e.hot); err != nil {
				e.peer.metrics.refused(err, e.groups)
			}
			e.sent = err == nil
		}
	}
	again = r.askLocal(s)
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
func (r *Router) askLocal(s *spread) (again time.Duration) {
	again = r.promises.decide(r.local, s.local)
	for i, g := range s.from {
		g.Allowed, g.Loan = s.local[i].Allowed, s.local[i].Loan
	}
	return again
}

func (s *spread) giveUp(a *ask) {
	now := time.Now()
	for i := range s.errands {
		if e := &s.errands[i]; e.sent {
			e.peer.metrics.late.Add(float64(e.lane.giveUp(a, e.first, now)))
		}
	}
}

// add assigns g, or its parts, unless it can be answered from what is known.
func (r *Router) add(s *spread, t *table, g *shard.Group, now time.Time) {
	if len(g.Takes) == 0 {
		return
	}
	if owner, all := t.owner(g); all {
		var c *hotCounter
		from := fromOwner
		if t.peers[owner] != nil {
			c, from = r.hot.consult(g, t.lane(owner, g), now)
		}
		if from != known {
			s.assign(t, owner, g, c)
		}
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
		s.assign(t, p.owner, &p.group, nil)
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
	looked := 0
	for i := range w.parts {
		if w.parts[i].group.Peek {
			looked++
		}
	}
	for i := range w.parts {
		if p := &w.parts[i]; p.group.Peek {
			p.group.Peek = false
			for j := range p.group.Takes {
				t := &p.group.Takes[j]
				t.Decision, t.Source = algorithms.Decision{}, shard.Unanswered
				t.Tentative = looked > 1 // another part may be denied yet
			}
			s.assign(t, p.owner, &p.group, nil)
		}
	}
}

func (w *split) part(owner int) *part {
	for i := range w.parts {
		if w.parts[i].owner == owner {
			return &w.parts[i]
		}
	}
	w.parts = append(w.parts, part{owner: owner, group: shard.Group{Reset: w.whole.Reset, LentAt: w.whole.LentAt}})
	return &w.parts[len(w.parts)-1]
}

// assign has the owner asked for g, as for a hot counter if c is not nil.
func (s *spread) assign(t *table, owner int, g *shard.Group, c *hotCounter) {
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
	e.groups, e.hot = append(e.groups, g), append(e.hot, c)
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
	if w.whole.Allowed || w.whole.Reset || w.whole.LentAt > 0 {
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
		r.promises.giveBack(r.local, counted)
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
