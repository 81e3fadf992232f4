package replica

import (
	"math/bits"
	"slices"

	"github.com/weirlimit/weir/cluster/view"
)

// The world of the search: one partition, three nodes with up to three lives each, the views that are written as it goes, and two
// messages on their way. It has no pointers, so that millions of its states fit into memory.
const (
	worldNodes    = 3
	worldLives    = 3 // of a node
	worldViews    = 7
	worldMessages = 2
	worldGrants   = 4
)

// life is a life of a node: 0 for none, or 1 + node*worldLives + incarnation - 1.
type life uint8

func (l life) node() int { return int(l-1) / worldLives }

var lifeTable = func() (t [1 + worldNodes*worldLives]view.Life) {
	for i := 1; i < len(t); i++ {
		t[i] = view.Life{ID: string(rune('a' + life(i).node())), Incarnation: uint64((i-1)%worldLives + 1)}
	}
	return t
}()

func codeOf(l view.Life) life {
	if l.ID == "" {
		return 0
	}
	return life(1 + int(l.ID[0]-'a')*worldLives + int(l.Incarnation) - 1)
}

// lives4 are up to four lives in order, four bits each.
type lives4 uint16

func (c lives4) at(i int) life { return life(c >> (4 * i) & 15) }

func packLives(lives []view.Life) (c lives4) {
	if len(lives) > 4 {
		panic("the world has no room for more than four predecessors")
	}
	for i, l := range lives {
		c |= lives4(codeOf(l)) << (4 * i)
	}
	return c
}

var livesCache = make(map[lives4][]view.Life)

func (c lives4) unpack() []view.Life {
	if c == 0 {
		return nil
	}
	if cached, found := livesCache[c]; found {
		return cached
	}
	var lives []view.Life
	for i := range 4 {
		if l := c.at(i); l != 0 {
			lives = append(lives, lifeTable[l])
		}
	}
	livesCache[c] = slices.Clip(lives)
	return lives
}

func (c lives4) has(l life) bool {
	return c.at(0) == l || c.at(1) == l || c.at(2) == l || c.at(3) == l
}

// marks are Acknowledged: by node two bits of the incarnation and three of the last delta.
type marks uint16

func packMarks(a Acknowledged) (m marks) {
	for _, k := range a {
		m |= marks(k.Life.Incarnation<<3|k.Last) << (5 * (k.Life.ID[0] - 'a'))
	}
	return m
}

var marksCache = make(map[marks]Acknowledged)

func (m marks) unpack() Acknowledged {
	if m == 0 {
		return nil
	}
	if cached, found := marksCache[m]; found {
		return cached
	}
	var a Acknowledged
	for i := range worldNodes {
		if k := uint64(m >> (5 * i) & 31); k != 0 {
			a = append(a, Mark{view.Life{ID: string(rune('a' + i)), Incarnation: k >> 3}, k & 7})
		}
	}
	marksCache[m] = a
	return a
}

// worldView is what a view says.
type worldView struct {
	owner, standby life
	term           uint8
	members, preds lives4
}

// worldNode is a node in its present life, or dead.
type worldNode struct {
	life                    life
	alive, suspended        bool
	saidFarewell            bool // it has said farewell
	gave                    bool // Replica.Gave is the term of the claim
	standsIn                bool
	state                   State
	view                    uint8 // the number of the newest that it has adopted
	term, sequence, content uint8 // of its copy: the version, and the grants in it as bits
	acked, shared           marks
	heard                   lives4
	first, next             uint8 // its deltas
	complete                uint8
	reported                nodeReport
	given                   uint8 // the view that replaced it, to a successor that takes it for ended; it has no lease before it has adopted that
}

// nodeReport is what has reached the writer of views.
type nodeReport struct {
	adopted           uint8 // the number of a view
	settled, complete bool  // by that view
}

// reportOf returns what a replica reports. Reports that mean the same look alike: one that says nothing, and one of an owner that has settled, which
// means the same in all views with that term.
func reportOf(r *Replica) nodeReport {
	switch settled, complete := r.Report(); {
	case complete:
		return nodeReport{uint8(r.Claim.Number), settled, true}
	case settled:
		return nodeReport{uint8(r.Claim.Term), true, false}
	}
	return nodeReport{}
}

type worldMessage struct {
	kind         EventKind
	src, dst     life
	number, term uint8
	copyTerm     uint8
	sequence     uint8
	content      uint8
	acked        marks
	first, next  uint8
}

// world is a state of everything.
type world struct {
	views    [worldViews]worldView
	nodes    [worldNodes]worldNode
	messages [worldMessages]worldMessage
	// grants are what each grant was: 0 if an owner made it, else the life that made it from its copy and the number of the delta.
	grants                 [worldGrants]uint8
	written, granted, lost uint8
	crashes, moves, lapses uint8
	farewells, standIns    uint8
	inexact                bool // two nodes may have granted from their copies: the limit is not checked any more
}

func (w *world) last() *worldView { return &w.views[w.written-1] }

func (w *world) isAlive(l life) bool {
	return l != 0 && w.nodes[l.node()].alive && w.nodes[l.node()].life == l
}

// hasHolders reports whether the owner, the standby or a predecessor of a view is alive.
func (w *world) hasHolders(number uint8) bool {
	v := &w.views[number-1]
	for i := range w.nodes {
		if n := &w.nodes[i]; n.alive && (n.life == v.owner || n.life == v.standby || v.preds.has(n.life)) {
			return true
		}
	}
	return false
}

// hasSaidFarewell reports whether a life has said farewell.
func (w *world) hasSaidFarewell(l life) bool {
	return l != 0 && w.nodes[l.node()].saidFarewell && w.nodes[l.node()].life == l
}

// replica returns the replica of a node.
func (w *world) replica(i int) Replica {
	n := &w.nodes[i]
	r := Replica{
		Self: lifeTable[n.life], Own: Own{lifeTable[n.life], Deltas{uint64(n.first), uint64(n.next)}}, State: n.state, Heard: n.heard.unpack(), StandsIn: n.standsIn,
		Copy: Copy{Version{uint64(n.term), uint64(n.sequence)}, n.acked.unpack(), n.shared.unpack(), uint64(n.complete)},
	}
	r.Claim = w.claim(n.view)
	if n.gave {
		r.Gave = r.Claim.Term
	}
	return r
}

func (w *world) claim(number uint8) Claim {
	if number == 0 {
		return Claim{}
	}
	v := &w.views[number-1]
	return Claim{uint64(number), view.Partition{Owner: lifeTable[v.owner], Term: uint64(v.term), Standby: lifeTable[v.standby], Predecessors: v.preds.unpack()}}
}

// keep stores a replica.
func (w *world) keep(i int, r Replica) {
	n := &w.nodes[i]
	n.state, n.view, n.term, n.sequence = r.State, uint8(r.Claim.Number), uint8(r.Version.Term), uint8(r.Version.Sequence)
	n.shared, n.gave, n.standsIn = packMarks(r.Shared), r.Gave > 0, r.StandsIn
	n.acked, n.heard, n.first, n.next, n.complete = packMarks(r.Acknowledged), sortLives(packLives(r.Heard)), uint8(r.Deltas.First), uint8(r.Deltas.Next), uint8(r.Complete)
}

// sortLives has sets that are equal look alike.
func sortLives(c lives4) lives4 {
	if c>>4 == 0 {
		return c
	}
	l := []life{c.at(0), c.at(1), c.at(2), c.at(3)}
	slices.Sort(l)
	slices.Reverse(l)
	return lives4(l[0]) | lives4(l[1])<<4 | lives4(l[2])<<8 | lives4(l[3])<<12
}

// deltaBits returns the grants that are those deltas.
func (w *world) deltaBits(of life, d Deltas) (found uint8) {
	for i, g := range w.grants[:w.granted] {
		if g != 0 && life(g>>4) == of && uint64(g&15) >= d.First && uint64(g&15) < d.Next {
			found |= 1 << i
		}
	}
	return found
}

func (w *world) ownDeltas(i int) uint8 {
	n := &w.nodes[i]
	if n.first == n.next {
		return 0
	}
	return w.deltaBits(n.life, Deltas{uint64(n.first), uint64(n.next)})
}

// send puts a message on its way, if there is room for it. Messages are a set.
func (w *world) send(m worldMessage) bool {
	at := -1
	for i := range w.messages {
		if w.messages[i] == m {
			return true
		}
		if w.messages[i].kind == 0 && at < 0 {
			at = i
		}
	}
	if at < 0 {
		return false
	}
	w.messages[at] = m
	w.sortMessages()
	return true
}

// sortMessages has sets that are equal look alike. There are two.
func (w *world) sortMessages() {
	a, b := &w.messages[0], &w.messages[1]
	if b.kind != 0 && (a.kind == 0 || after(a, b)) {
		*a, *b = *b, *a
	}
}

func after(a, b *worldMessage) bool {
	x, y := a.key(), b.key()
	return x[0] > y[0] || x[0] == y[0] && x[1] > y[1]
}

func (m *worldMessage) key() [2]uint64 {
	return [2]uint64{
		uint64(m.kind)<<56 | uint64(m.src)<<48 | uint64(m.dst)<<40 | uint64(m.number)<<32 | uint64(m.term)<<24 | uint64(m.copyTerm)<<16 | uint64(m.sequence)<<8 | uint64(m.content),
		uint64(m.acked)<<16 | uint64(m.first)<<8 | uint64(m.next),
	}
}

// kept returns the grants that are where they reach the node that decides: in deltas, in the copy of a node that decides, and in the copies
// of those that the newest view names, unless a successor has taken them for ended.
func (w *world) kept() (kept uint8) {
	last := w.last()
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.alive {
			continue
		}
		kept |= w.ownDeltas(i)
		if n.state == Deciding && !n.suspended {
			kept |= n.content
		}
		named := n.life == last.owner || n.life == last.standby || last.preds.has(n.life)
		if named && (n.given == 0 || n.life == last.owner || n.term >= last.term) {
			kept |= n.content
		}
	}
	return kept
}

// lose counts what is nowhere any more as lost with the node that had it.
func (w *world) lose() { w.lost |= w.all() &^ w.kept() }

func (w *world) all() uint8 { return 1<<w.granted - 1 }

// fault returns what is wrong.
func (w *world) fault(limit int, exact bool) string {
	deciding := 0
	for i := range w.nodes {
		n := &w.nodes[i]
		if !n.alive {
			continue
		}
		if n.state == Deciding && !n.suspended {
			deciding++
		}
		if int(n.sequence) != bits.OnesCount8(n.content) {
			return "a copy counts a grant twice, or not at all"
		}
		if problem := w.invariant(i); problem != "" {
			return problem
		}
	}
	switch {
	case deciding > 1:
		return "two decide"
	case w.all()&^w.kept()&^w.lost != 0:
		return "a grant is forgotten"
	case exact && !w.inexact && int(w.granted) > limit+bits.OnesCount8(w.lost):
		return "the limit is exceeded"
	}
	return ""
}

// invariant checks the formulas of Replica.
func (w *world) invariant(i int) string {
	n := &w.nodes[i]
	if n.view == 0 {
		return ""
	}
	v := &w.views[n.view-1]
	switch {
	case (n.state >= Waiting) != (v.owner == n.life):
		return "an owner does neither wait nor decide, or another node does"
	case (n.state == Deciding || n.state == Following) && n.term != v.term:
		return "a node decides or follows with a copy of another term"
	case n.state == None != (n.term == 0) && n.state != Waiting:
		return "a node without a copy has a version"
	case n.complete > n.view, n.first > n.next:
		return "complete or deltas are wrong"
	case n.state != Waiting && n.heard != 0:
		return "a node that does not wait has heard predecessors"
	}
	for k := range 4 {
		if h := n.heard.at(k); h != 0 && !v.preds.has(h) {
			return "it has heard a node that is no predecessor"
		}
	}
	return ""
}
