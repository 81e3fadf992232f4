package shard

import (
	"encoding/binary"
	"fmt"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// applyStep is the number of records applied under one lock; one of them may be a range.
const applyStep = 64

// copied is the state of a partition that only a copy has.
type copied struct {
	grants map[ring.Key]*unsentGrant // provisional grants not sent yet, by the part of the key that slots store
	under  map[ring.Key]*Grant       // grants sent and not confirmed, see Underway; by the same part
	// Counters of long algorithms are deleted at the end of a round in which no record of them came.
	round   uint32
	inRound bool
}

// ensureCopiedLocked returns p.copied, which it creates if there is none.
func (p *partition) ensureCopiedLocked() *copied {
	if p.copied == nil {
		p.copied = &copied{}
	}
	return p.copied
}

// Apply applies records of Changes to partition p, which must be sealed: they replace the counters that
// they name. Provisional grants of p, and grants under way, are merged in. A damaged record fails the whole
// call with an error, before anything has changed. Counters beyond the memory limit are dropped, the least
// used first.
func (s *Shard) Apply(p uint32, records []byte) error {
	n := uint32(len(s.partitions))
	if p >= n {
		return fmt.Errorf("shard: records: partition %d is not below %d", p, n)
	}
	for rest := records; len(rest) > 0; {
		r, behind, err := nextRecord(rest)
		if err == nil {
			err = r.check(p, n)
		}
		if err != nil {
			return fmt.Errorf("shard: records of partition %d, at byte %d of %d: %w", p, len(records)-len(rest), len(records), err)
		}
		rest = behind
	}
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	for done := 0; len(records) > 0; done++ {
		if done%applyStep == 0 {
			if done > 0 {
				x.yieldLock()
			}
			s.prefetchLocked(x, records)
		}
		if !x.sealed {
			return fmt.Errorf("shard: records of partition %d: it is open", p)
		}
		r, rest, _ := nextRecord(records)
		s.applyLocked(x, &r)
		records = rest
	}
	return nil
}

// prefetchLocked prefetches the memory of the next records that are slots.
func (s *Shard) prefetchLocked(p *partition, records []byte) {
	for n := 0; n < applyStep && len(records) > slotBytes && records[0] == tagSlot; n++ {
		p.table.prefetch(s.arena, ^binary.LittleEndian.Uint64(records[1:]))
		records = records[1+slotBytes:]
	}
}

func (s *Shard) applyLocked(p *partition, r *record) {
	switch r.tag {
	case tagClock:
		p.latest, p.sharing = max(p.latest, r.latest), max(p.sharing, r.sharing)
	case tagSlot:
		s.layLocked(p, r.slot(0))
	case tagGone:
		s.removeLocked(p, r.key)
	case tagRange:
		s.layRangeLocked(p, r)
	case tagLong:
		s.layLongLocked(p, r)
	case tagLongGone:
		if e := p.long[r.key]; e != nil {
			s.removeLongLocked(p, e)
		}
	case tagBeginLongs:
		c := p.ensureCopiedLocked()
		c.round, c.inRound = c.round+1, true
	case tagEndLongs:
		s.endLongsLocked(p)
	}
}

// layLocked replaces the counter of e's key by e.
func (s *Shard) layLocked(p *partition, e slot) {
	if g := p.unacknowledgedLocked(e.key()); g != nil && g.Long == nil {
		e.state = algorithms.Merge(&g.Limit, e.state, g.State, p.latest)
		u := g.usageOf(e.state, p.latest)
		e.expires, e.share = max(e.expires, u.expires), max(e.share, u.share)
	}
	there := p.table.find(s.arena, e.key())
	if there == nil {
		if !s.makeRoomForLocked(p, &e) {
			s.countEvicted()
			return
		}
		s.addLocked(p, e)
		if !p.followed {
			return
		}
		if there = p.table.find(s.arena, e.key()); there == nil {
			return
		}
	}
	e.share |= there.share & marks
	*there = e
	s.listChangeLocked(p, there)
}

// makeRoomForLocked makes room for e, which is not in the table. It returns false if all counters that it
// compared have used a greater share of their limits than e.
func (s *Shard) makeRoomForLocked(p *partition, e *slot) bool {
	if p.table.room(s.arena) {
		return true
	}
	victim, found := s.victimLocked(p, e.key(), nil, true)
	if found {
		there := victim.next(s.arena).usage()
		found = there.share <= e.share || there.expires <= over(p.latest)
	}
	if found {
		s.evictLocked(p, victim)
	}
	return found
}

// removeLocked deletes the counter of key, except for provisional grants.
func (s *Shard) removeLocked(p *partition, key ring.Key) {
	if g := p.unacknowledgedLocked(key); g == nil || g.Long != nil {
		s.deleteLocked(p, key)
	} else if e := p.table.find(s.arena, key); e != nil {
		s.leaveGrantLocked(p, e, g)
	}
}

// leaveGrantLocked reduces e to what was granted provisionally here.
func (s *Shard) leaveGrantLocked(p *partition, e *slot, g *Grant) {
	u := g.usageOf(g.State, p.latest)
	e.state, e.expires, e.share = g.State, u.expires, u.share|e.share&marks
	s.listChangeLocked(p, e)
}

// layRangeLocked applies all slots of a range, and deletes other slots in it.
func (s *Shard) layRangeLocked(p *partition, r *record) {
	i := 0
	for c := p.table.seek(s.arena, r.from); ; {
		e := c.next(s.arena)
		if e == nil || ^e.hi > r.to {
			break
		}
		for i < r.len() && r.slot(i).hi > e.hi {
			i++
		}
		if g := p.unacknowledgedLocked(e.key()); r.has(i, e) {
			c.i++
		} else if g != nil && g.Long == nil {
			s.leaveGrantLocked(p, e, g)
			c.i++
		} else {
			s.listChangeLocked(p, e)
			p.table.removeAt(s.arena, c)
			s.counters.Add(-1)
		}
	}
	for i := range r.len() {
		s.layLocked(p, r.slot(i))
	}
}

// has reports whether there is a slot for the key of e among those of r from i on.
func (r *record) has(i int, e *slot) bool {
	for ; i < r.len(); i++ {
		x := r.slot(i)
		if x.hi != e.hi {
			return false
		}
		if x.lo == e.lo {
			return true
		}
	}
	return false
}

// layLongLocked replaces the counter that r is of by r's.
func (s *Shard) layLongLocked(p *partition, r *record) {
	var counter algorithms.Long
	if counter.UnmarshalBinary(r.long) != nil { // cannot fail: r was checked
		return
	}
	e := p.long[r.key]
	if e == nil {
		e = s.addLongLocked(p, r.key)
	}
	e.usage, e.counter, e.round = r.usage, counter, p.ensureCopiedLocked().round
	if g := p.unacknowledgedLocked(r.key); g != nil && g.Long != nil {
		s.mergeLongLocked(p, e, g)
		e.expires, e.share = max(e.expires, r.usage.expires), max(e.share, r.usage.share)
	}
	s.weighLongLocked(e)
	s.listLongLocked(p, e, false)
	s.makeRoomForLongLocked(p, r.key, []Take{{Key: r.key}})
}

// removeLongLocked deletes e, except for provisional grants.
func (s *Shard) removeLongLocked(p *partition, e *longEntry) {
	g := p.unacknowledgedLocked(e.key)
	if g == nil || g.Long == nil {
		s.deleteLongLocked(p, e)
		return
	}
	e.counter = algorithms.Long{}
	s.mergeLongLocked(p, e, g)
	s.listLongLocked(p, e, false)
}

// endLongsLocked deletes the counters of which no record came in the round.
func (s *Shard) endLongsLocked(p *partition) {
	c := p.ensureCopiedLocked()
	if !c.inRound {
		return
	}
	c.inRound = false
	for _, e := range p.long {
		if e.round != c.round {
			s.removeLongLocked(p, e)
		}
	}
}

// Clear deletes the counters of partition p, except for provisional grants and grants under way. The gate
// and the followers of p stay.
func (s *Shard) Clear(p uint32) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	s.counters.Add(int64(-x.table.n))
	x.table.n = 0
	x.table.tidy(s.arena)
	for _, e := range x.long {
		s.dropLongLocked(x, e)
	}
	s.forgetAllLocked(x)
	x.sharing = 0
	for f := range Follower(followers) {
		if x.follows[f] != nil {
			x.startOverLocked(f)
			x.startLongsOverLocked(f)
		}
	}
	if c := x.copied; c != nil {
		c.inRound = false
		for _, g := range c.unacknowledged() {
			s.layGrantLocked(x, g)
		}
	}
}
