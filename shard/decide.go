package shard

import (
	"runtime"
	"slices"
	"unsafe"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Decide decides every group, in order: each atomically, and each counted whole or not at all. It sets
// every Take's Decision and Source and every Group's Allowed. Limits must be valid, and costs as
// algorithms.Step wants them.
//
// In a denied group, the Takes that had room have the Decision of a peek: they are Allowed, and took
// nothing. If a group touches a sealed partition, nothing is taken either: its Takes there are Redirected,
// the others Undecided, and Allowed is false even if all are shadows.
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
	runtime.KeepAlive(s.arena) // its memory is unmapped with it
}

func (s *Shard) decide(groups []Group, now int64) {
	lapsed := now >= s.leaseUntil.Load()
	for len(groups) > 0 {
		g := &groups[0]
		if g.simple() && !(lapsed && !g.Ungated) {
			groups = groups[s.decideOnes(groups, now):]
			continue
		}
		groups = groups[1:]
		switch {
		case lapsed && g.needsDecisionLease():
			g.redirect()
		case g.Reset:
			s.reset(g, now)
		case g.LentAt > 0 && !g.Peek:
			s.giveBack(g, now)
		case g.Provisional && !g.Ungated:
			s.decideProvisionally(g, now)
		case g.Lend > 0 && !g.Peek:
			s.lend(g, now)
		default:
			s.decideMany(g, now)
		}
	}
}

// simple reports whether g is of the most frequent kind: one take, and nothing else to do.
func (g *Group) simple() bool {
	return len(g.Takes) == 1 && !g.Takes[0].Limit.Algorithm.Long() &&
		!g.Reset && !g.Provisional && (g.Peek || g.LentAt|g.Lend == 0)
}

// lookAhead is the number of groups whose memory is prefetched before the first is decided.
const lookAhead = 32

// lookAhead prefetches the memory of the groups, so that the waits overlap.
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
				for _, x := range p.follows {
					if x != nil {
						prefetch(unsafe.Pointer(x))
					}
				}
				p.mu.Unlock()
			}
		}
	}
}

func (s *Shard) partition(k ring.Key) *partition {
	return &s.partitions[k.Partition(uint32(len(s.partitions)))]
}

// decideOnes decides the first of the groups, which is simple, and the simple ones of the same partition
// that follow it, under one lock. Consecutive takes of one counter need one search, and repetitions of a
// denied take one step. It returns the number of groups decided.
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
		if p.sealed && !g.Ungated {
			g.redirect()
			e = nil
			continue
		}
		p.heat++
		if e != nil && groups[n-1].Takes[0].Key == g.Takes[0].Key {
			if g.repeats(&groups[n-1]) {
				last := &groups[n-1].Takes[0]
				g.Takes[0].Decision, g.Takes[0].Contended, g.Takes[0].Source = last.Decision, last.Contended, Owner
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

// repeats reports whether g is the take that was just denied to last, at the same instant. It then has the
// same answer: a denial changes nothing.
func (g *Group) repeats(last *Group) bool {
	t, l := &g.Takes[0], &last.Takes[0]
	return !l.Decision.Allowed && t.Cost == l.Cost && g.Peek == last.Peek && t.Limit == l.Limit
}

// decideOneLocked decides g, which is simple. Its counter's slot is e, nil if there is none. It reports
// whether the standby should be given the change at once.
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
		if p.memory != nil || t.Tentative {
			s.noteLocked(p, key, t, before, e != nil)
			s.advanceLeasesLocked(p, key, now)
		}
		s.putLocked(p, e, key, t, state)
		if key != t.Key {
			s.metrics.shared.Inc()
		}
		if p.followed {
			urgent = s.notifyFollowersLocked(p, e, key, t)
		}
	case e != nil:
		s.keepLocked(p, e, t)
	}
	t.Contended = !t.Decision.Allowed && s.contendedLocked(p, t, before, now)
	t.Source = Owner
	g.Allowed = t.Decision.Allowed || t.Shadow
	if p.memory != nil {
		p.showTakeLocked(t)
	}
	return urgent
}

// changes reports whether t, once decided, changes its counter. A give-back to a counter that does not
// exist changes nothing.
func (t *Take) changes(found bool) bool {
	return t.Decision.Allowed && (t.Cost > 0 || t.Cost < 0 && found)
}

// begins reports whether t adds its counter, which does not exist yet.
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

// decideTogether decides take by take, so that two takes of one counter see each other, and undoes all if
// one is denied. It reports whether the standby should be given the changes at once.
func (s *Shard) decideTogether(g *Group, now int64) (urgent bool) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.redirectLocked(g, locked) {
		return false
	}
	return s.decideLocked(g, now)
}

// decideLocked is decideTogether without the check of the gates.
func (s *Shard) decideLocked(g *Group, now int64) (urgent bool) {
	urgent = s.countLocked(g, now)
	s.showLocked(g)
	return urgent
}

// countLocked is decideLocked with tokens on lease counted as used.
func (s *Shard) countLocked(g *Group, now int64) (urgent bool) {
	var fewUndo [8]undo
	undos := slices.Grow(fewUndo[:0], len(g.Takes))
	group := exemptGroup{takes: g.Takes}
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
			s.advanceLeasesLocked(p, u.key, now)
			if p.followed {
				urgent = s.notifyFollowersLocked(p, nil, u.key, t) || urgent
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
	key   ring.Key // the take's, or a shared one
	found bool
	old   slot  // the slot before, if found
	long  usage // the usage of a long counter before, if found
	// before is the state that the take has found; takes of other keys may be in it if the counter is
	// shared.
	before algorithms.State
}

// stepLocked decides t and counts it. It returns how to undo that, and whether there is something to undo.
func (s *Shard) stepLocked(p *partition, t *Take, group *exemptGroup, now int64) (u undo, changed bool) {
	u.key = t.Key
	if t.Limit.Algorithm.Long() {
		if e := p.long[t.Key]; e != nil {
			u.long = e.usage
		}
		u.found, changed = s.stepLongLocked(p, t, now)
		t.Contended = u.found && !t.Decision.Allowed && s.contendedLocked(p, t, algorithms.State{}, now)
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
	t.Contended = !t.Decision.Allowed && s.contendedLocked(p, t, u.before, now)
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
			} else { // the group's give-backs have left it empty, and it was dropped
				s.addLocked(p, u.old)
			}
		default:
			s.dropLocked(p, u.key)
		}
	}
}

// makeRoomLocked evicts for the counters that the group has added, only once its takes stay: a denied group
// must not evict a counter, nor a take the counter of an earlier take.
func (s *Shard) makeRoomLocked(g *Group, group *exemptGroup, undos []undo) {
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
		s.makeRoomForLongLocked(p, t.Key, g.Takes)
	}
}

// lookAgainLocked replaces the decisions of takes that had room by those of a peek.
func (s *Shard) lookAgainLocked(g *Group, now int64) {
	for i := range g.Takes {
		if t := &g.Takes[i]; t.Decision.Allowed {
			t.Decision = s.lookLocked(s.partition(t.Key), t, now)
		}
	}
}

// reset deletes the group's counters, and sets the decisions of a peek after that.
func (s *Shard) reset(g *Group, now int64) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.redirectLocked(g, locked) {
		return
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		p := s.partition(t.Key)
		s.deleteLocked(p, t.Key)
		s.forgetLocked(p, t.Key)
		s.dropAccountLocked(p, t.Key)
		if e := p.long[t.Key]; e != nil {
			s.deleteLongLocked(p, e)
		}
		t.Decision = s.lookLocked(p, t, now)
		t.Source = Owner
	}
	g.Allowed = true
}

// Keep says that takes that were counted tentatively stay: their group was allowed.
func (s *Shard) Keep(takes []Take) {
	for i := range takes {
		p := s.partition(takes[i].Key)
		p.mu.Lock()
		s.forgetTentativeLocked(&takes[i])
		p.mu.Unlock()
	}
}

// Return undoes takes that were counted: those of a group of which another node denied the rest. Their
// give-backs are taken again if no other take has used the tokens since. A Provisional take is undone in
// the copy and in its provisional grant. The Source becomes Redirected if another node must undo the take:
// its partition is sealed, or its grant was sent.
func (s *Shard) Return(takes []Take) {
	now := s.now()
	for i := range takes {
		t := &takes[i]
		p := s.partition(t.Key)
		p.mu.Lock()
		at := p.clockLocked(now)
		s.forgetTentativeLocked(t)
		switch {
		case t.Settles:
			if !p.sealed { // token leases are known to no other node
				s.settleLocked(p, t, t.Decision.At, t.Cost, at)
			}
			t.Source = Owner
		case !p.sealed:
			s.returnLocked(p, t, at)
			t.Source = Owner
		case t.Source == Provisional:
			s.returnLocked(p, t, at)
			if !p.returnGrantLocked(t, at) {
				t.Source = Redirected
			}
		default:
			t.Source = Redirected
		}
		p.mu.Unlock()
	}
}
