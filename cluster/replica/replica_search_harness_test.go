package replica

import (
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"

	"github.com/weirlimit/weir/cluster/view"
)

// search drives Step and view.Next through all interleavings of one partition.
type search struct {
	limit, grants int  // a limit, and how many grants there are at most
	crashes       int  // of nodes, each of which is restarted
	farewells     int  // of nodes that end by their own word, each of which is restarted
	moves         int  // views that need not be: plans that change, and suspicions
	lapses        int  // of decision leases
	standIns      int  // of nodes that grant from what they have in the place of all that may have a copy
	suspects      bool // nodes that run may be taken for gone, by the writer of views and by standbys
	broken        rule
	most          int // states; 0 for all

	written map[nextKey][]nextView
	way     *way
}

// way is the states that were visited, and how.
type way struct {
	seen   table
	states [][]world // in blocks
	from   []uint32
	count  int
}

const block = 1 << 14

func (w *way) at(i int) *world { return &w.states[i/block][i%block] }

func (w *way) add(x *world, from int, traced bool) {
	if w.count%block == 0 {
		w.states = append(w.states, make([]world, block))
	}
	*w.at(w.count) = *x
	w.count++
	if traced {
		w.from = append(w.from, uint32(from))
	}
}

// table is a set of hashes of 64 bits, open, at most two thirds full. Two states with one hash are taken for one: of 20 million states that is expected
// 0.00001 times.
type table struct {
	slots []uint64
	used  int
}

func (t *table) add(h uint64) (fresh bool) {
	if h == 0 {
		h = 1
	}
	if 3*t.used >= 2*len(t.slots) {
		old := t.slots
		t.slots, t.used = make([]uint64, max(1<<16, 2*len(old))), 0
		for _, o := range old {
			if o != 0 {
				t.add(o)
			}
		}
	}
	mask := uint64(len(t.slots) - 1)
	for i := h & mask; ; i = (i + 1) & mask {
		switch t.slots[i] {
		case h:
			return false
		case 0:
			t.slots[i] = h
			t.used++
			return true
		}
	}
}

var hashSeed = maphash.MakeSeed()

// start is a cluster of three: a decides, and b follows.
func start() *world {
	w := &world{written: 1}
	w.views[0] = worldView{owner: 1, standby: 4, term: 1, members: 1 | 4<<4 | 7<<8}
	for i := range w.nodes {
		w.nodes[i] = worldNode{life: life(1 + i*worldLives), alive: true, view: 1, first: 1, next: 1}
	}
	w.nodes[0].state, w.nodes[0].term, w.nodes[0].reported = Deciding, 1, nodeReport{1, true, false}
	w.nodes[1].state, w.nodes[1].term, w.nodes[1].complete, w.nodes[1].reported = Following, 1, 1, nodeReport{1, false, true}
	return w
}

// run visits states until there are no more, or enough, or a fault is found, which it returns with the way to it.
func (s *search) run() (states int, complete bool, problem string) {
	s.written = make(map[nextKey][]nextView)
	s.way = &way{}
	first := start()
	s.way.seen.add(maphash.Comparable(hashSeed, *first))
	s.way.add(first, 0, true)
	for at := 0; ; at++ { // more are added meanwhile
		if at == s.way.count {
			return at, true, ""
		}
		x := *s.way.at(at)
		s.successors(&x, func(y *world, why string) {
			if problem != "" || !s.way.seen.add(maphash.Comparable(hashSeed, *y)) {
				return
			}
			s.way.add(y, at, true)
			if fault := y.fault(s.limit, !s.suspects && s.lapses == 0); fault != "" {
				problem = fault + s.trace(s.way.count-1)
			}
		})
		if problem != "" || s.most > 0 && s.way.count >= s.most {
			return s.way.count, false, problem
		}
	}
}

// trace returns the way to a state.
func (s *search) trace(to int) string {
	var path []int
	for i := to; i > 0; i = int(s.way.from[i]) {
		path = append(path, i)
	}
	var b strings.Builder
	at := 0
	for k := len(path) - 1; k >= 0; k-- {
		x := *s.way.at(at)
		y := s.way.at(path[k])
		s.successors(&x, func(z *world, why string) {
			if *z == *y {
				b.WriteString("\n" + why + format(y))
			}
		})
		at = path[k]
	}
	return b.String()
}

func format(w *world) string {
	var b strings.Builder
	v := w.last()
	fmt.Fprintf(&b, "\n    view %d: owner %s term %d standby %s after %s members %s; granted %d lost %b", w.written, name(v.owner), v.term, name(v.standby), names(v.preds), names(v.members), w.granted, w.lost)
	for i := range w.nodes {
		n := &w.nodes[i]
		fmt.Fprintf(&b, "\n    %s alive %t suspended %t state %d view %d copy %d/%d %b acked %v heard %s deltas %d-%d complete %d reported %+v given %d", name(n.life), n.alive,
			n.suspended, n.state, n.view, n.term, n.sequence, n.content, n.acked.unpack(), names(n.heard), n.first, n.next, n.complete, n.reported, n.given)
	}
	fmt.Fprintf(&b, "\n    messages %+v", w.messages)
	return b.String()
}

func name(l life) string {
	if l == 0 {
		return "-"
	}
	return fmt.Sprintf("%s%d", lifeTable[l].ID, lifeTable[l].Incarnation)
}

func names(c lives4) string {
	var s []string
	for i := range 4 {
		if l := c.at(i); l != 0 {
			s = append(s, name(l))
		}
	}
	return strings.Join(s, ",")
}

// emit passes on a state that follows, and why.
type emit func(y *world, why string)

func (s *search) successors(x *world, visit emit) {
	s.write(x, visit)
	for i := range x.nodes {
		if !x.nodes[i].alive {
			s.restart(x, i, visit)
			continue
		}
		s.learn(x, i, visit)
		s.lapse(x, i, visit)
		s.grant(x, i, visit)
		s.speak(x, i, visit)
		s.end(x, i, visit)
		s.crash(x, i, visit)
		s.part(x, i, visit)
		s.standIn(x, i, visit)
	}
	s.deliver(x, visit)
}

func (s *search) restart(x *world, i int, visit emit) {
	n := &x.nodes[i]
	if int(n.life-1)%worldLives+1 < worldLives {
		y := *x
		y.nodes[i] = worldNode{life: n.life + 1, alive: true, first: 1, next: 1}
		visit(&y, "restart "+name(n.life+1))
	}
}

func (s *search) crash(x *world, i int, visit emit) {
	if int(x.crashes) < s.crashes {
		y := *x
		y.crashes++
		n := &y.nodes[i]
		*n = worldNode{life: n.life, reported: n.reported}
		y.lose()
		visit(&y, "crash "+name(n.life))
	}
}

// part has a node say farewell. It grants nothing any more, for good.
func (s *search) part(x *world, i int, visit emit) {
	n := &x.nodes[i]
	if int(x.farewells) >= s.farewells || n.saidFarewell {
		return
	}
	y := *x
	y.farewells++
	if y.nodes[i].saidFarewell = true; s.broken != ruleFarewell {
		y.nodes[i] = worldNode{life: n.life, reported: n.reported, saidFarewell: true}
		y.lose()
	}
	visit(&y, name(n.life)+" says farewell")
}

// standIn has a node grant from what it has in the place of owner, standby and predecessors, which are gone or suspected to be, or no more. What it has granted
// is counted, and what those had is not known: the limit is not checked.
func (s *search) standIn(x *world, i int, visit emit) {
	n := &x.nodes[i]
	y := *x
	if n.standsIn {
		s.apply(&y, i, Event{Kind: StandIn}, nil)
		visit(&y, name(n.life)+" does not stand in any more")
		return
	}
	if int(x.standIns) >= s.standIns || n.view == 0 || n.state >= Waiting || x.hasHolders(n.view) && !s.suspects {
		return
	}
	y.standIns++
	y.inexact = true
	s.apply(&y, i, Event{Kind: StandIn, On: true}, nil)
	visit(&y, name(n.life)+" stands in")
}

// learn has a node adopt views, and the writer hear from it.
func (s *search) learn(x *world, i int, visit emit) {
	n := &x.nodes[i]
	for number := n.view + 1; number <= x.written; number++ {
		y := *x
		if s.apply(&y, i, Event{Kind: Adopt, Claim: y.claim(number)}, nil) {
			visit(&y, fmt.Sprintf("%s adopts view %d", name(n.life), number))
		}
	}
	r := x.replica(i)
	if now := reportOf(&r); now != n.reported && now != (nodeReport{}) { // what says nothing leaves the writer nothing more to do
		y := *x
		y.nodes[i].reported = now
		visit(&y, name(n.life)+" reports")
	}
}

// lapse has a decision lease end and come back. It does not come back to a node that a successor takes for ended, before that has adopted
// the view in which it was replaced.
func (s *search) lapse(x *world, i int, visit emit) {
	n := &x.nodes[i]
	if !n.suspended && n.state >= Waiting && int(x.lapses) < s.lapses {
		y := *x
		y.lapses++
		y.nodes[i].suspended = true
		visit(&y, name(n.life)+"'s lease lapses")
	}
	if n.suspended && n.given <= n.view {
		y := *x
		y.nodes[i].suspended, y.nodes[i].given = false, 0
		s.apply(&y, i, Event{Kind: Resumed}, &worldMessage{})
		visit(&y, name(n.life)+"'s lease is valid again")
	}
}

func (s *search) grant(x *world, i int, visit emit) {
	n := &x.nodes[i]
	if int(x.granted) >= s.grants || bits.OnesCount8(n.content|x.ownDeltas(i)) >= s.limit {
		return
	}
	r := x.replica(i)
	if r.State == Deciding && !n.suspended {
		y := *x
		y.keep(i, r.Granted())
		y.nodes[i].content |= 1 << y.granted
		y.granted++
		visit(&y, name(n.life)+" grants")
	}
	reaches := func(l view.Life) bool { return !s.suspects && x.isAlive(codeOf(l)) }
	if (s.suspects || n.view == x.written) && r.MayGrantFromCopy(reaches) {
		y := *x
		after, number := r.GrantedFromCopy()
		y.keep(i, after)
		y.grants[y.granted] = uint8(n.life)<<4 | uint8(number)
		y.granted++
		visit(&y, name(n.life)+" grants from its copy")
	}
}

// speak has a node send what it may send at any time.
func (s *search) speak(x *world, i int, visit emit) {
	n := &x.nodes[i]
	claim := x.claim(n.view)
	owner := codeOf(claim.Owner)
	if n.state == Deciding {
		for k := range x.nodes {
			if k != i && x.nodes[k].alive {
				y := *x
				if y.send(worldMessage{kind: Feed, src: n.life, dst: x.nodes[k].life, number: n.view, copyTerm: n.term, sequence: n.sequence, content: n.content, acked: n.acked}) {
					visit(&y, name(n.life)+" feeds "+name(x.nodes[k].life))
				}
			}
		}
	}
	if n.state < Waiting && n.first < n.next {
		for k := range x.nodes {
			y := *x
			to := x.nodes[k].life
			if k != i && x.nodes[k].alive && (to == owner || to == codeOf(claim.Standby) || x.nodes[k].standsIn) && y.send(worldMessage{kind: Posted, src: n.life, dst: to, first: n.first, next: n.next}) {
				visit(&y, name(n.life)+" posts its deltas to "+name(to))
			}
		}
	}
	if n.state == Following && x.isAlive(owner) && n.acked != 0 {
		y := *x
		if y.send(worldMessage{kind: Copied, src: n.life, dst: owner, copyTerm: n.term, sequence: n.sequence, acked: n.acked}) {
			visit(&y, name(n.life)+" confirms its copy")
		}
	}
	if n.state < Waiting && x.isAlive(owner) {
		y := *x
		if s.apply(&y, i, Event{Kind: Ask, From: claim.Owner}, nil) {
			visit(&y, name(n.life)+" gives its final state again")
		}
	}
	y := *x
	if s.apply(&y, i, Event{Kind: Drop}, nil) {
		visit(&y, name(n.life)+" drops its copy")
	}
}

// end has an owner take its predecessors for ended: those that are dead, and those whose decision leases have lapsed, which must
// not become valid again by an earlier view.
func (s *search) end(x *world, i int, visit emit) {
	n := &x.nodes[i]
	if n.state != Waiting || n.suspended {
		return
	}
	for _, l := range x.claim(n.view).Predecessors {
		p := codeOf(l)
		lives := x.isAlive(p)
		if x.hasSaidFarewell(p) && !n.heard.has(p) {
			y := *x
			if s.apply(&y, i, Event{Kind: Ended, From: l}, nil) {
				visit(&y, name(n.life)+" hears the farewell of "+name(p))
			}
			continue
		}
		if n.heard.has(p) || lives && !x.nodes[p.node()].suspended && s.broken != ruleWaits {
			continue
		}
		y := *x
		if lives {
			y.nodes[p.node()].given = max(y.nodes[p.node()].given, x.views[n.view-1].term)
		}
		if s.apply(&y, i, Event{Kind: Ended, From: l}, nil) {
			if lives {
				y.lost |= x.kept()&^y.kept() | y.nodes[p.node()].content&^y.nodes[i].content
			}
			visit(&y, name(n.life)+" takes "+name(p)+" for ended")
		}
	}
}

func (s *search) deliver(x *world, visit emit) {
	for k := range x.messages {
		m := x.messages[k]
		if m.kind == 0 {
			continue
		}
		rest := *x
		rest.messages[k] = worldMessage{}
		rest.sortMessages()
		visit(&rest, "a message is lost")
		if !x.isAlive(m.dst) {
			continue
		}
		for _, base := range []*world{&rest, x} { // the message may come again
			y := *base
			if s.apply(&y, m.dst.node(), m.event(), &m) {
				visit(&y, fmt.Sprintf("%s gets message %d of %s", name(m.dst), m.kind, name(m.src)))
			}
		}
	}
}

func (m *worldMessage) event() Event {
	return Event{
		Kind: m.kind, From: lifeTable[m.src], Number: uint64(m.number), Term: uint64(m.term), Version: Version{uint64(m.copyTerm), uint64(m.sequence)},
		Acknowledged: m.acked.unpack(), Deltas: Deltas{uint64(m.first), uint64(m.next)},
	}
}

// apply has a node take an event and carries out what it is to do. It reports whether anything came of it.
func (s *search) apply(y *world, i int, e Event, m *worldMessage) bool {
	before := *y
	n := &y.nodes[i]
	if s.broken == ruleKeepsDeltas && e.Kind == Drop {
		defer func() { n.first = max(n.first, 1) }()
	}
	r, actions := s.step(y.replica(i), e, !n.suspended)
	y.keep(i, r)
	for k := range actions {
		s.perform(y, i, &actions[k], m)
	}
	if r.State == Deciding { // what was shared is part of the copy now
		for _, k := range before.nodes[i].shared.unpack() {
			n.content |= y.deltaBits(codeOf(k.Life), Deltas{1, k.Last + 1})
		}
	}
	if (e.Kind == Feed || e.Kind == Answered || e.Kind == Drop) && y.isUnnamed(n.life) {
		y.lose() // what it has believed is lost with the owner that had said so
	}
	return *y != before
}

// isUnnamed reports whether a life has no role in the newest view, or none that the views before had led to: it begins with fresh counters.
func (w *world) isUnnamed(l life) bool {
	last := w.last()
	if l == last.standby || last.preds.has(l) {
		return false
	}
	if l != last.owner || last.term == 1 {
		return l != last.owner
	}
	before := &w.views[last.term-2]
	return l != before.owner && l != before.standby && !before.preds.has(l)
}

func (s *search) perform(y *world, i int, a *Action, m *worldMessage) {
	n := &y.nodes[i]
	switch a.Kind {
	case Install:
		n.content = m.content
	case AddDeltas: // those of a former standby are apart from the version
		if n.state == Deciding {
			n.content |= y.deltaBits(codeOf(a.To), a.Deltas) // the sequence shows if one was there
		}
	case SendFinal:
		y.send(worldMessage{
			kind: Final, src: n.life, dst: codeOf(a.To), term: uint8(a.Term), copyTerm: uint8(a.Version.Term), sequence: uint8(a.Version.Sequence),
			content: n.content, acked: packMarks(a.Acknowledged),
		})
	case SendAnswer:
		y.send(worldMessage{kind: Answered, src: n.life, dst: codeOf(a.To), number: uint8(a.Number)})
	case Discard:
		n.content = 0
	case TrimDeltas: // the replica says it all
	}
}
