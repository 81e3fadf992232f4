package shard

import (
	"slices"

	"github.com/weirlimit/weir/ring"
)

// longLevels is how many levels of use there are: sixteenths of a limit, and one for exhausted counters.
const longLevels = 17

// levels orders the long counters of one partition by use: for eviction, which must not visit all of them.
// In a level, the counter stepped or looked at last is the last one, so that those of a group under way
// are the last ones of their levels. Its partition's lock guards it.
type levels [longLevels]struct{ first, last *longEntry }

// levelOf returns the level of a share.
func levelOf(share uint16) uint8 {
	if share >= whole {
		return longLevels - 1
	}
	return uint8(share >> 12)
}

// levelsOf returns the levels of the partition of key, and makes them before their first use.
func (s *Shard) levelsOf(key ring.Key) *levels {
	x := &s.longLevels[key.Partition(uint32(len(s.partitions)))]
	if *x == nil {
		*x = new(levels)
	}
	return *x
}

// push puts e, which is in no level, at the end of the one of its share.
func (x *levels) push(e *longEntry) {
	e.level = levelOf(e.share)
	l := &x[e.level]
	e.previous, e.next = l.last, nil
	if l.last == nil {
		l.first = e
	} else {
		l.last.next = e
	}
	l.last = e
}

// remove takes e out of its level.
func (x *levels) remove(e *longEntry) {
	l := &x[e.level]
	if e.previous == nil {
		l.first = e.next
	} else {
		e.previous.next = e.next
	}
	if e.next == nil {
		l.last = e.previous
	} else {
		e.next.previous = e.previous
	}
	e.previous, e.next = nil, nil
}

// move puts e at the end of the level of its share.
func (x *levels) move(e *longEntry) {
	if x[e.level].last == e && levelOf(e.share) == e.level {
		return
	}
	x.remove(e)
	x.push(e)
}

// victim returns the counter to evict for those of the group, nil if there are no others: an expired one
// at the front of a level, or else one of the lowest level, the least used of those compared.
func (x *levels) victim(group []Take, over uint32) *longEntry {
	exempt := func(e *longEntry) bool {
		return slices.ContainsFunc(group, func(t Take) bool { return t.Key == e.key })
	}
	for i := range x {
		if e := x[i].first; e != nil && e.expires <= over && !exempt(e) {
			return e
		}
	}
	for i := range x {
		v := victims{heavyToo: true, over: over}
		var victim *longEntry
		for e := x[i].first; e != nil && !exempt(e); e = e.next { // the group's are the last ones
			best, more := v.compare(e.usage)
			if best {
				victim = e
			}
			if !more {
				break
			}
		}
		if victim != nil {
			return victim
		}
	}
	return nil
}

// makeRoomForLongLocked keeps the counters of long algorithms within their memory limit, except for those
// of the group. It evicts from p, the partition of key.
func (s *Shard) makeRoomForLongLocked(p *partition, key ring.Key, group []Take) {
	for s.longBytes.Load() > s.maxLong && s.evictLongLocked(p, key, group) {
		continue
	}
}

// evictLongLocked evicts one counter of a long algorithm, not of the group, from p, the partition of key. It
// reports whether there was one.
func (s *Shard) evictLongLocked(p *partition, key ring.Key, group []Take) bool {
	victim := s.levelsOf(key).victim(group, over(p.latest))
	if victim == nil {
		return false
	}
	s.deleteLongLocked(p, victim)
	if victim.expires <= over(p.latest) {
		s.metrics.expired.Inc()
	} else {
		s.countEvicted()
	}
	return true
}
