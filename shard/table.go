package shard

import (
	"math"
	"math/bits"
	"unsafe"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Sizes of a table.
const (
	// A table is at most fullNum/fullDen full, then it grows by 1/growth: a look-up
	// passes 1.5 to 2 other slots on average, in memory that lies side by side (Knuth, "The
	// Art of Computer Programming", vol. 3, 6.4).
	fullNum, fullDen = 4, 5
	growth           = 8
	// If it cannot grow, shared counters may be added up to brimNum/brimDen.
	brimNum, brimDen = 9, 10
	// No search begins at the last slots of a table, so that few tables need another page for what does not
	// fit before the end.
	spareSlots = 16
	// A table that is less than 1/sparse full is made smaller by the sweeper.
	sparse = 2
	// moveStep is how many slots one addition moves to the larger table.
	moveStep = 64
)

// slot is one counter: half a cache line. Its key is given by its table (that is, by the key's partition),
// by hi and by lo. Of 100 million counters in 1021 partitions, any two are taken for one with a probability
// of 4e-12.
type slot struct {
	hi      uint64 // of the key, inverted, so that an empty slot comes after all others
	state   algorithms.State
	expires uint32 // see usage; 0 if the slot is empty
	share   uint16 // see usage; the marks in its low bits are the followers in whose lists the slot is
	lo      uint16 // of the key
}

func newSlot(key ring.Key, state algorithms.State, u usage) slot {
	return slot{hi: ^key.Hi, state: state, expires: u.expires, share: u.share, lo: lowBits(key)}
}

// lowBits returns the bits of a key's low half that a slot keeps. Key.Partition uses other bits.
func lowBits(key ring.Key) uint16 { return uint16(key.Lo >> 48) }

func (s *slot) isFor(key ring.Key) bool {
	return s.hi == ^key.Hi && s.lo == lowBits(key) && s.expires != 0
}

func (s *slot) usage() usage { return usage{expires: s.expires, share: s.share &^ marks} }

// key returns the part of the slot's key that a table knows.
func (s *slot) key() ring.Key { return ring.Key{Hi: ^s.hi, Lo: uint64(s.lo) << 48} }

// table is the counters of one partition: a hash table with open addressing and linear probing, ordered by
// key (Amble and Knuth, "Ordered hash tables", 1974). A search ends where the key would be, and a larger
// table is filled from one end to the other. It lies in pages of an arena, and grows a few slots at a time:
// slots already moved, up to a key, are in the one run, and the rest in the other.
type table struct {
	run
	moving   *move // nil if not
	n        int   // slots used
	reserved int   // pages of the arena's budget, 0 if there is no slot
}

// move is where a table moves to.
type move struct {
	run             // of the keys below the frontier
	frontier uint64 // high half of a key
	from     int    // in the old run, the first slot that was not moved
	given    int    // pages of the old run that were returned
}

// run is a sequence of slots.
type run struct {
	pages []uint32 // in the arena
	homes int      // how many slots a search may begin at
}

func (r *run) end() int { return len(r.pages) * pageSlots }

// home is where the search for a key begins. Keys are hashes: their high halves,
// scaled to the number of slots, are as good as any other hash. (The low halves say
// which partition they belong to.)
func (r *run) home(hi uint64) int {
	home, _ := bits.Mul64(hi, uint64(r.homes))
	return int(home)
}

// firstAt returns the lowest high half whose home is not before i, which is the home of some key.
func (r *run) firstAt(i int) uint64 {
	hi, rest := bits.Div64(uint64(i), 0, uint64(r.homes))
	if rest > 0 {
		hi++
	}
	return hi
}

func (r *run) slot(a *arena, i int) *slot { return &a.pages[r.pages[i/pageSlots]][i%pageSlots] }

// search returns where the first key not below hi is or would be, at or after from.
func (r *run) search(a *arena, hi uint64, from int) int {
	i := max(r.home(hi), from)
	for i < r.end() {
		p := &a.pages[r.pages[i/pageSlots]]
		for j := i % pageSlots; j < pageSlots; j++ {
			if p[j].hi <= ^hi {
				return i
			}
			i++
		}
	}
	return i
}

// find returns the place of a key, if it is there.
func (r *run) find(a *arena, key ring.Key, from int) (i int, found bool) {
	for i = r.search(a, key.Hi, from); i < r.end(); i++ {
		switch s := r.slot(a, i); {
		case s.isFor(key):
			return i, true
		case s.hi != ^key.Hi || s.expires == 0:
			return i, false
		}
	}
	return i, false
}

// insert puts s where its key belongs, and moves up what comes after it until an empty
// slot or one that is over at now. It reports whether that one was dropped, and whether
// there was room.
func (r *run) insert(a *arena, s slot, from int, now uint32) (dropped, ok bool) {
	i := r.search(a, ^s.hi, from)
	j := r.free(a, i, now)
	for j >= r.end() {
		p, ok := a.take()
		if !ok {
			return false, false
		}
		r.pages = append(r.pages, p)
	}
	free := r.slot(a, j)
	dropped = free.expires != 0
	for first := j &^ (pageSlots - 1); i < first; first -= pageSlots { // it is on a later page
		p := &a.pages[r.pages[first/pageSlots]]
		copy(p[1:j-first+1], p[:j-first])
		p[0] = *r.slot(a, first-1)
		j = first - 1
	}
	p := &a.pages[r.pages[i/pageSlots]]
	i, j = i%pageSlots, j%pageSlots
	copy(p[i+1:j+1], p[i:j])
	p[i] = s
	return dropped, true
}

// free returns the first slot from i on that is empty or over at now.
func (r *run) free(a *arena, i int, now uint32) int {
	for i < r.end() {
		p := &a.pages[r.pages[i/pageSlots]]
		for j := i % pageSlots; j < pageSlots; j++ {
			if p[j].expires <= now {
				return i
			}
			i++
		}
	}
	return i
}

// remove empties slot i, and moves down what can be nearer to its home then.
func (r *run) remove(a *arena, i int) {
	s := r.slot(a, i)
	for i++; i < r.end(); i++ {
		next := r.slot(a, i)
		if next.expires == 0 || r.home(^next.hi) == i {
			break
		}
		*s = *next
		s = next
	}
	*s = slot{}
}

// at returns the run in which a key belongs, and where that begins.
func (t *table) at(hi uint64) (r *run, from int) {
	switch m := t.moving; {
	case m == nil:
		return &t.run, 0
	case hi < m.frontier:
		return &m.run, 0
	default:
		return &t.run, m.from
	}
}

// find returns the slot of a key, nil if there is none. It may be written to until the next add or remove.
func (t *table) find(a *arena, key ring.Key) *slot {
	r, from := t.at(key.Hi)
	if i, found := r.find(a, key, from); found {
		return r.slot(a, i)
	}
	return nil
}

// prefetch prefetches the memory of a key's slot.
func (t *table) prefetch(a *arena, hi uint64) {
	r, from := t.at(hi)
	if i := max(r.home(hi), from); i < r.end() {
		prefetch(unsafe.Pointer(r.slot(a, i)))
	}
}

// room makes room for one more counter, and returns false if the arena's budget is used up.
func (t *table) room(a *arena) bool {
	if !t.full() {
		return true
	}
	if t.moving != nil {
		t.move(a, math.MaxInt, 0)
	}
	return t.begin(a, t.reserved+max(1, t.reserved/growth))
}

// full reports whether one more counter would be too many.
func (t *table) full() bool { return (t.n+1)*fullDen > t.size()*fullNum }

// crowded reports whether there are more counters than the bound.
func (t *table) crowded() bool { return t.n*fullDen > t.size()*fullNum }

// brimful reports whether even one more shared counter would be too many.
func (t *table) brimful() bool { return (t.n+1)*brimDen > t.size()*brimNum }

// size returns how many homes there are, or will be.
func (t *table) size() int {
	if t.moving != nil {
		return t.moving.homes
	}
	return t.homes
}

// begin begins to move to a number of pages, of which one is reserved for every table from the start. It
// returns false if they cannot be reserved, or if a move is under way.
func (t *table) begin(a *arena, pages int) bool {
	if t.moving != nil || !a.reservePages(max(0, pages-max(1, t.reserved))) {
		return false
	}
	t.moving = &move{run: run{homes: pages*pageSlots - spareSlots}}
	t.reserved = max(t.reserved, pages) // a smaller table keeps the reservation until it has moved
	if t.n == 0 {
		t.move(a, math.MaxInt, 0)
	}
	return true
}

// add adds s, whose key is not there yet. It returns how many expired slots were dropped, and whether there
// was memory.
func (t *table) add(a *arena, s slot, now uint32) (dropped int, ok bool) {
	if t.moving != nil {
		dropped = t.move(a, moveStep, now)
	}
	r, from := t.at(^s.hi)
	over, ok := r.insert(a, s, from, now)
	if over {
		dropped++
		t.n--
	}
	if ok {
		t.n++
	}
	return dropped, ok
}

// move moves up to n slots, empty ones included, and drops those expired at now. Slots of equal high halves
// move together. It returns how many were dropped.
func (t *table) move(a *arena, n int, now uint32) (dropped int) {
	m := t.moving
	equal := struct {
		begun    bool
		hi       uint64
		first    int    // the first slot
		frontier uint64 // before it
		dropped  int
	}{}
	for ; ; m.from++ {
		if m.from == t.end() {
			t.endMove(a)
			return dropped
		}
		s := t.slot(a, m.from)
		if n <= 0 && m.frontier > 0 && (s.expires == 0 || s.hi != equal.hi) {
			break
		}
		n--
		if s.expires == 0 {
			continue
		}
		if !equal.begun || s.hi != equal.hi {
			equal.begun, equal.hi, equal.first, equal.frontier, equal.dropped = true, s.hi, m.from, m.frontier, 0
		}
		if s.expires <= now {
			dropped++
			equal.dropped++
			t.n--
		} else if _, ok := m.insert(a, *s, 0, 0); !ok {
			for i := equal.first; i < m.from; i++ {
				if at, moved := m.find(a, t.slot(a, i).key(), 0); moved {
					m.remove(a, at)
				}
			}
			m.from, m.frontier = equal.first, equal.frontier
			dropped -= equal.dropped
			t.n += equal.dropped
			break
		}
		m.frontier = ^s.hi + 1 // 0 above all keys: then the loop continues to the end
	}
	for ; m.given < m.from/pageSlots; m.given++ {
		a.give(t.pages[m.given])
	}
	return dropped
}

// endMove ends a move.
func (t *table) endMove(a *arena) {
	for _, p := range t.pages[t.moving.given:] {
		a.give(p)
	}
	t.run, t.moving = t.moving.run, nil
	pages := (t.homes + spareSlots) / pageSlots
	a.releasePages(t.reserved - pages)
	t.reserved = pages
}

// remove deletes a key. It reports whether it was there.
func (t *table) remove(a *arena, key ring.Key) bool {
	r, from := t.at(key.Hi)
	i, found := r.find(a, key, from)
	if found {
		r.remove(a, i)
		t.n--
	}
	return found
}

// tidy begins to move to fewer pages if most are empty. A table without counters returns all of them.
func (t *table) tidy(a *arena) {
	if t.n == 0 && t.reserved > 0 {
		for _, p := range t.pages[t.given():] {
			a.give(p)
		}
		if t.moving != nil {
			for _, p := range t.moving.pages {
				a.give(p)
			}
		}
		a.releasePages(t.reserved - 1)
		*t = table{}
	}
	if t.n*fullDen*sparse < t.homes*fullNum {
		if pages := 1 + (t.n*fullDen/fullNum*(growth+1)/growth+spareSlots)/pageSlots; pages < t.reserved {
			t.begin(a, pages)
		}
	}
}

// given returns how many pages of the old run were returned.
func (t *table) given() int {
	if t.moving == nil {
		return 0
	}
	return t.moving.given
}

// cursor walks over a table that does not change meanwhile, in the order of the keys.
type cursor struct {
	t *table
	r *run
	i int
}

// seek returns a cursor before the first key that is not below hi.
func (t *table) seek(a *arena, hi uint64) cursor {
	r, from := t.at(hi)
	return cursor{t, r, r.search(a, hi, from)}
}

// nextRun goes on from the run that the table moves to to the other one. It returns false if there is none.
func (c *cursor) nextRun() bool {
	if c.r == &c.t.run {
		return false
	}
	c.r, c.i = &c.t.run, c.t.moving.from
	return true
}

// least returns a lower bound for the high halves of all keys after the cursor, which is at an empty slot:
// 0 if it knows of none.
func (c *cursor) least() uint64 {
	switch {
	case c.i >= c.r.homes:
		return 0
	case c.r == &c.t.run:
		return c.r.firstAt(c.i)
	default:
		return min(c.r.firstAt(c.i), c.t.moving.frontier)
	}
}

// next returns the used slot at the cursor or after it, nil if there is none, and
// leaves the cursor there.
func (c *cursor) next(a *arena) *slot {
	for {
		for ; c.i < c.r.end(); c.i++ {
			if s := c.r.slot(a, c.i); s.expires != 0 {
				return s
			}
		}
		if !c.nextRun() {
			return nil
		}
	}
}

// removeAt deletes the slot at the cursor; another slot may be there then.
func (t *table) removeAt(a *arena, c cursor) {
	c.r.remove(a, c.i)
	t.n--
}
