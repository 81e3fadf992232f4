// Package shard provides the counters of one node: the only mutable state of the
// limiter.
//
// The node's share of the ring is cut into partitions, each a table behind one
// mutex. Decide locks the partitions that a group touches, reads the clock, takes
// one step of package algorithms per counter, and keeps the result or throws it
// away as a whole.
package shard

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Config says how to build a Shard. Every field is required, but for MaxLongBytes.
type Config struct {
	// Partitions is the ring's number of partitions.
	Partitions uint32
	// MaxBytes bounds the memory of the counters' tables, at least MinBytes. A new counter
	// beyond it takes the place of an old one: of one that is over, or else of one that has
	// used little of its limit, never half of it or more. If there is none, it is
	// counted together with others of the same limit.
	MaxBytes int
	// MaxLongBytes bounds the memory of the counters of long algorithms, give or take
	// those of one group per partition. Beyond it one takes the place of others. 0 means
	// DefaultMaxLongBytes.
	MaxLongBytes int64
	// Relieve, unless nil, is called by Run once per round of 10 s in which 16 MiB or more were given
	// back to the kernel: the load that the process has grown for has gone, too.
	Relieve func()
	// Metrics is where the shard's metrics are registered.
	Metrics prometheus.Registerer
}

// Shard holds counters. It is safe for concurrent use; make it with New.
type Shard struct {
	partitions []partition
	arena      *arena
	steps      atomic.Int64 // of all histories
	counters   atomic.Int64 // how many entries all tables hold; written under the lock of the table that changes
	longBytes  atomic.Int64 // of all counters of long algorithms; likewise
	maxLong    int64
	grantBytes atomic.Int64 // of all grants that are kept apart; likewise
	metrics    metrics
	relieve    func() // see Config.Relieve; not nil
	urgent     atomic.Pointer[func(p uint32)]
	authority  atomic.Int64 // until when anything is decided, MaxInt64 if there is no bound

	// Instants are the wall clock's at start plus what the monotonic clock has
	// counted since: a step of the wall clock changes nothing.
	started time.Time
	epoch   int64 // started in Unix nanoseconds
}

// New returns an empty Shard.
func New(c Config) (*Shard, error) {
	if c.Partitions == 0 {
		return nil, fmt.Errorf("shard: partitions: 0 is not at least 1")
	}
	if least := MinBytes(c.Partitions); c.MaxBytes < least {
		return nil, fmt.Errorf("shard: max bytes: %d is not at least %d", c.MaxBytes, least)
	}
	if c.MaxBytes > maxMaxBytes {
		return nil, fmt.Errorf("shard: max bytes: %d is not at most %d", c.MaxBytes, maxMaxBytes)
	}
	if c.MaxLongBytes < 0 {
		return nil, fmt.Errorf("shard: max long bytes: %d is not at least 0", c.MaxLongBytes)
	}
	budget := c.MaxBytes/pageBytes - int(c.Partitions) // every table has one
	arena, err := newArena(budget, extraPages*int(c.Partitions))
	if err != nil {
		return nil, err
	}
	started := time.Now()
	s := &Shard{
		partitions: make([]partition, c.Partitions),
		arena:      arena,
		maxLong:    cmp.Or(c.MaxLongBytes, DefaultMaxLongBytes),
		relieve:    c.Relieve,
		started:    started,
		epoch:      started.UnixNano(),
	}
	if s.relieve == nil {
		s.relieve = func() {}
	}
	s.metrics = newMetrics(c.Metrics, s)
	s.SetAuthority(time.Time{})
	return s, nil
}

// extraPages is how many pages a table takes at most beyond what the budget promises it:
// the first one, one at the end, and one each at both ends of a move.
const extraPages = 4

// maxMaxBytes is where the numbers of pages end.
const maxMaxBytes = math.MaxUint32 * pageBytes / 2

// MinBytes is the least memory that the tables of so many partitions work with.
func MinBytes(partitions uint32) int { return int(partitions) * pageBytes }

// Bytes returns how much memory the counters' tables take, those of long algorithms aside.
func (s *Shard) Bytes() int { return s.arena.bytes() }

// Len returns how many counters there are, expired ones that were not yet swept
// included.
func (s *Shard) Len() int { return int(s.counters.Load()) }

func (s *Shard) now() int64 { return s.epoch + int64(time.Since(s.started)) }

// Decide answers every group, in order: each atomically against everybody else,
// and each counted whole or not at all. It sets every Take's Decision and Source
// and every Group's Allowed. Limits must be valid, and costs as
// algorithms.Step wants them.
//
// Where a group is denied, the Takes that had room say what they would say to a
// request that is not made: they are Allowed, and nothing was taken. Where one touches a
// partition that is closed, nothing was taken either: its Takes there are Moved, the others
// Unanswered, and Allowed is false even if all are shadows.
func (s *Shard) Decide(groups []Group) {
	now := s.now()
	for len(groups) > lookAhead {
		s.lookAhead(groups[:lookAhead])
		s.decide(groups[:lookAhead], now)
		groups = groups[lookAhead:]
	}
	if len(groups) > 1 {
		s.lookAhead(groups)
	}
	s.decide(groups, now)
	runtime.KeepAlive(s.arena) // whose memory goes with it
}

func (s *Shard) decide(groups []Group, now int64) {
	lapsed := now >= s.authority.Load()
	for len(groups) > 0 {
		g := &groups[0]
		if g.simple() && !(lapsed && !g.Ungated) {
			groups = groups[s.decideOnes(groups, now):]
			continue
		}
		groups = groups[1:]
		switch {
		case lapsed && g.needsAuthority():
			g.moved()
		case g.Reset:
			s.reset(g, now)
		case g.LentAt > 0 && !g.Peek:
			s.giveBack(g, now)
		case g.Provisional && !g.Ungated:
			s.decideProvisionally(g, now)
		case g.Lend > 0 && !g.Peek:
			s.lend(g)
		default:
			s.decideMany(g, now)
		}
	}
}

// simple reports whether g is what most are: one take, and nothing else to be done.
func (g *Group) simple() bool {
	return len(g.Takes) == 1 && !g.Takes[0].Limit.Algorithm.Long() &&
		!g.Reset && !g.Provisional && (g.Peek || g.LentAt|g.Lend == 0)
}

// lookAhead is for how many groups memory is asked for before the first is decided.
const lookAhead = 32

// lookAhead asks for the memory that the groups will need, so that they wait for it together
// and not one after the other.
func (s *Shard) lookAhead(groups []Group) {
	var last ring.Key
	for i := range groups {
		takes := groups[i].Takes
		for j := range takes {
			key := takes[j].Key
			if key == last {
				continue
			}
			last = key
			if p := s.partition(key); p.mu.TryLock() {
				p.table.prefetch(s.arena, key.Hi)
				if x := p.follows[ToStandby]; x != nil {
					prefetch(unsafe.Pointer(x))
				}
				p.mu.Unlock()
			}
		}
	}
}

func (s *Shard) partition(k ring.Key) *partition {
	return &s.partitions[k.Partition(uint32(len(s.partitions)))]
}

// decideOnes decides the first of the groups, which is simple, and those that follow it as long
// as they are and are in the same partition, under one lock: of one counter they take one search,
// and those that ask what was denied just before take one step. It returns how many they are.
func (s *Shard) decideOnes(groups []Group, now int64) (n int) {
	p := s.partition(groups[0].Takes[0].Key)
	var e *slot // of the take before, nil if it had none or if that may have moved
	urgent := false
	p.mu.Lock()
	now = p.clockLocked(now)
	for ; n < len(groups); n++ {
		g := &groups[n]
		if n > 0 && (!g.simple() || s.partition(g.Takes[0].Key) != p) {
			break
		}
		if p.closed && !g.Ungated {
			g.moved()
			e = nil
			continue
		}
		p.heat++
		if e != nil && groups[n-1].Takes[0].Key == g.Takes[0].Key {
			if g.repeats(&groups[n-1]) {
				g.Takes[0].Decision, g.Takes[0].Source = groups[n-1].Takes[0].Decision, Owner
				g.Allowed = g.Takes[0].Shadow
				continue
			}
		} else {
			e = p.table.find(s.arena, g.Takes[0].Key)
		}
		if s.decideOneLocked(p, g, e, now) {
			urgent = true
		}
	}
	p.mu.Unlock()
	if urgent {
		s.urge(groups[0].Takes[0].Key)
	}
	return n
}

// repeats reports whether g asks its counter, at the same instant, for what was denied to last, and
// so has the same answer: a denial changes nothing.
func (g *Group) repeats(last *Group) bool {
	t, l := &g.Takes[0], &last.Takes[0]
	return !l.Decision.Allowed && t.Cost == l.Cost && g.Peek == last.Peek && t.Limit == l.Limit
}

// decideOneLocked decides g, which is simple. Its counter's entry is e, if there is one. It reports
// whether a follower should be told at once.
func (s *Shard) decideOneLocked(p *partition, g *Group, e *slot, now int64) (urgent bool) {
	t := &g.Takes[0]
	key := t.Key
	var victim cursor
	full := false
	if e == nil && !g.Peek && t.begins() && p.table.full() {
		key, victim, full = s.keyLocked(p, t, nil)
		e = p.table.find(s.arena, key)
	}
	before := s.stateLocked(p, e, t)
	state := algorithms.StepInto(&t.Decision, &t.Limit, before, now, t.Cost)
	switch {
	case g.Peek:
	case t.changes(e != nil):
		if full {
			s.evictLocked(p, victim)
		}
		if p.histories != nil || t.Tentative {
			s.noteLocked(p, key, t, before, e != nil)
		}
		s.putLocked(p, e, key, t, state)
		if key != t.Key {
			s.metrics.shared.Inc()
		}
		if p.followed {
			urgent = s.tellLocked(p, e, key, t)
		}
	case e != nil:
		s.keepLocked(p, e, t)
	}
	t.Source = Owner
	g.Allowed = t.Decision.Allowed || t.Shadow
	return urgent
}

// changes reports whether t, once decided, changes its counter. What is given back
// to one that is not there changes nothing.
func (t *Take) changes(found bool) bool {
	return t.Decision.Allowed && (t.Cost > 0 || t.Cost < 0 && found)
}

// begins reports whether t, whose counter is not there yet, makes one.
func (t *Take) begins() bool { return t.Cost > 0 && t.Cost <= t.Limit.Capacity() }

func (s *Shard) decideMany(g *Group, now int64) {
	if !s.decideTogether(g, now) {
		return
	}
	for i := range g.Takes {
		if t := &g.Takes[i]; t.urgent() {
			s.urge(t.Key)
		}
	}
}

// decideTogether counts take by take, so that two takes of one counter see each
// other, and puts everything back if one is denied. It reports whether a follower should be
// told at once.
func (s *Shard) decideTogether(g *Group, now int64) (urgent bool) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.movedLocked(g, locked) {
		return false
	}
	return s.decideLocked(g, now)
}

// decideLocked is decideTogether whatever the gates say.
func (s *Shard) decideLocked(g *Group, now int64) (urgent bool) {
	var fewUndo [8]undo
	undos := fewUndo[:0]
	group := spared{takes: g.Takes}
	g.Allowed = true
	for i := range g.Takes {
		t := &g.Takes[i]
		if u, changed := s.stepLocked(s.partition(t.Key), t, &group, now); changed {
			u.take = i
			undos = append(undos, u)
		}
		t.Source = Owner
		if !t.Decision.Allowed && !t.Shadow {
			g.Allowed = false
		}
	}
	switch {
	case g.Allowed && !g.Peek:
		s.giveBackLongLocked(g, now)
		s.makeRoomLocked(g, &group, undos)
		for i := range undos {
			u := &undos[i]
			t := &g.Takes[u.take]
			p := s.partition(t.Key)
			s.noteLocked(p, u.key, t, u.before, u.found)
			if p.followed {
				urgent = s.tellLocked(p, nil, u.key, t) || urgent
			}
		}
	default:
		s.undoLocked(g, undos, now)
	}
	if !g.Allowed {
		s.lookAgainLocked(g, now)
	}
	return urgent
}

type undo struct {
	take  int      // index
	key   ring.Key // that of the take, or one that it shares
	found bool
	old   slot  // what was there, if found
	long  usage // what was there of a long counter, if found
	// before is the state that the take has found, which others may have made that it shares a
	// counter with.
	before algorithms.State
}

// stepLocked decides t and counts it. It returns how to undo that, and whether there
// is something to undo.
func (s *Shard) stepLocked(p *partition, t *Take, group *spared, now int64) (u undo, changed bool) {
	u.key = t.Key
	if t.Limit.Algorithm.Long() {
		if e := p.long[t.Key]; e != nil {
			u.long = e.usage
		}
		u.found, changed = s.stepLongLocked(p, t, now)
		return u, changed
	}
	e := p.table.find(s.arena, u.key)
	if e == nil && t.begins() && p.table.full() {
		u.key, _, _ = s.keyLocked(p, t, group)
		e = p.table.find(s.arena, u.key)
	}
	if u.found = e != nil; u.found {
		u.old = *e
	}
	u.before = s.stateLocked(p, e, t)
	state := algorithms.StepInto(&t.Decision, &t.Limit, u.before, now, t.Cost)
	if changed = t.changes(u.found); changed {
		s.putLocked(p, e, u.key, t, state)
	} else if u.found {
		s.keepLocked(p, e, t)
	}
	return u, changed
}

func (s *Shard) undoLocked(g *Group, undos []undo, now int64) {
	for i := range slices.Backward(undos) {
		u := &undos[i]
		t := &g.Takes[u.take]
		p := s.partition(t.Key)
		switch {
		case t.Limit.Algorithm.Long():
			s.undoLongLocked(p, u, t, now)
		case u.found:
			if e := p.table.find(s.arena, u.key); e != nil {
				*e = u.old
			} else { // what the group has given back has left it empty, and it was dropped
				s.addLocked(p, u.old)
			}
		default:
			s.dropLocked(p, u.key)
		}
	}
}

// makeRoomLocked evicts for what the group has added, only now that it stays: a
// denied group must cost nobody his counter, nor a take that of one before it.
func (s *Shard) makeRoomLocked(g *Group, group *spared, undos []undo) {
	for i := range undos {
		u := &undos[i]
		t := &g.Takes[u.take]
		p := s.partition(t.Key)
		shared := u.key != t.Key
		if shared {
			s.metrics.shared.Inc()
		}
		if !u.found && (p.table.crowded() && !shared || p.table.brimful()) {
			if victim, found := s.victimLocked(p, u.key, group, shared); found {
				s.evictLocked(p, victim)
			}
		}
		s.makeRoomForLongLocked(p, g.Takes)
	}
}

// lookAgainLocked makes the takes that had room forget that they were counted.
func (s *Shard) lookAgainLocked(g *Group, now int64) {
	for i := range g.Takes {
		if t := &g.Takes[i]; t.Decision.Allowed {
			t.Decision = s.lookLocked(s.partition(t.Key), t, now)
		}
	}
}

// reset forgets the group's counters, and looks at what is there then.
func (s *Shard) reset(g *Group, now int64) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.movedLocked(g, locked) {
		return
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		p := s.partition(t.Key)
		s.deleteLocked(p, t.Key)
		s.forgetLocked(p, t.Key)
		if e := p.long[t.Key]; e != nil {
			s.deleteLongLocked(p, e)
		}
		t.Decision = s.lookLocked(p, t, now)
		t.Source = Owner
	}
	g.Allowed = true
}

// Return undoes what the takes have counted: those of a group whose other takes, on
// another node, were denied. What they had given back is taken again if nobody else
// has taken it since. What was counted in a partition that is closed is not this node's to
// undo, and is dropped; but if its Source is Provisional, it is undone in the copy and in what is
// kept apart.
func (s *Shard) Return(takes []Take) {
	now := s.now()
	for i := range takes {
		p := s.partition(takes[i].Key)
		p.mu.Lock()
		if t := &takes[i]; t.Source == Provisional {
			s.returnLocked(p, t, p.clockLocked(now))
			s.returnGrantLocked(p, t, p.clockLocked(now))
		} else if !p.closed {
			s.returnLocked(p, t, p.clockLocked(now))
		}
		p.mu.Unlock()
	}
}
