package shard

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of what is looked at to find a counter that is to make room.
const (
	evictScan = 64 // counters visited
	evictFew  = 16 // counters compared, if so many could be evicted
)

// sharedKey is the key of the counter that all in a partition share that have the same limit
// and no counter of their own. It is the same on every node.
func sharedKey(l *algorithms.Limit) ring.Key {
	var few [128]byte
	b := append(few[:0], byte(l.Algorithm))
	// Not MaxDelay, which differs by who asks.
	for _, v := range [...]int64{l.Limit, l.Window, l.Burst, 0, l.Buckets} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	if l.Calendar != nil {
		b = append(b, l.Calendar.String()...)
	}
	return ring.Key{Hi: ring.Hasher{}.Key(b).Hi}
}

// Shares.
const (
	whole = math.MaxUint16 &^ marks // the share of who has used all
	heavy = 1 << 15                 // the share from which on a counter does not make room for another one
)

// shareOf returns the share that a counter has used after t. One that owes, because its
// limit was lowered or because somebody waits for his turn, has used all of its
// capacity, not more.
func shareOf(t *Take) uint16 {
	capacity := max(1, t.Limit.Capacity())
	used := min(capacity, capacity-t.Decision.Remaining)
	return uint16((used*math.MaxUint16+capacity-1)/capacity) &^ marks
}

// keyLocked returns under which key t is to be counted, which is going to take something and
// has no counter yet: its own, unless there is neither room nor a counter that could make
// room. Then it is one that it shares. The victim, if there is one, has to be evicted before a
// counter is added; a group, which is not nil, does so only once it stays, and adds no
// more until then than a table has room for.
func (s *Shard) keyLocked(p *partition, t *Take, group *spared) (key ring.Key, victim cursor, full bool) {
	if p.table.room(s.arena) {
		return t.Key, cursor{}, false
	}
	if group == nil || !p.table.brimful() {
		if victim, full = s.victimLocked(p, t.Key, group, false); full {
			return t.Key, victim, true
		}
	}
	key = sharedKey(&t.Limit)
	if p.table.brimful() && p.table.find(s.arena, key) == nil {
		victim, full = s.victimLocked(p, key, group, true)
	}
	return key, victim, full
}

// victims compares counters to find the one that is to make room: an expired one, or
// else the one that has used the least of its limit, which loses the least by
// starting afresh.
type victims struct {
	heavyToo bool // counts those that have used half of their limit or more
	over     uint32
	best     usage
	few      int // compared so far
}

// compare looks at one more counter. It reports whether that is the best so far, and
// whether there is a need for another.
func (v *victims) compare(u usage) (best, more bool) {
	expired := u.expires <= v.over
	if !expired && !v.heavyToo && u.share >= heavy {
		return false, true
	}
	if best = expired || v.few == 0 || u.share < v.best.share; best {
		v.best = u
	}
	v.few++
	return best, !expired && v.few < evictFew
}

// spared are the counters of a group, which do not make room for each other: they are the
// least used of all as a rule, and would never count anything.
type spared struct {
	takes []Take
	his   []uint64 // of slots, sorted; nil before it is asked for
}

func (x *spared) has(e *slot) bool {
	if x == nil {
		return false
	}
	if x.his == nil {
		for i := range x.takes {
			x.his = append(x.his, ^x.takes[i].Key.Hi)
		}
		slices.Sort(x.his)
	}
	_, found := slices.BinarySearch(x.his, e.hi)
	return found
}

// victimLocked returns the place of the counter that is to make room: of one beside near, the
// key that needs the room, whose neighbours are as good as any, and in the processor's
// cache.
func (s *Shard) victimLocked(p *partition, near ring.Key, group *spared, heavyToo bool) (place cursor, found bool) {
	v := victims{heavyToo: heavyToo, over: over(p.latest)}
	c := p.table.seek(s.arena, near.Hi)
	for range min(evictScan, p.table.n) {
		e := c.next(s.arena)
		if e == nil {
			c = p.table.seek(s.arena, 0)
			e = c.next(s.arena)
		}
		if !e.isFor(near) && !group.has(e) {
			best, more := v.compare(e.usage())
			if best {
				place = c
			}
			if !more {
				break
			}
		}
		c.i++
	}
	return place, v.few > 0
}

// evictLocked makes room.
func (s *Shard) evictLocked(p *partition, victim cursor) {
	if e := victim.next(s.arena); e.expires <= over(p.latest) {
		s.metrics.expired.Inc()
	} else {
		s.changedLocked(p, e)
		s.metrics.evicted.Inc()
	}
	p.table.removeAt(s.arena, victim)
	s.counters.Add(-1)
}

// makeRoomForLongLocked keeps the counters of long algorithms within their bytes, those of the
// group aside.
func (s *Shard) makeRoomForLongLocked(p *partition, group []Take) {
	for s.longBytes.Load() > s.maxLong && s.evictLongLocked(p, group) {
		continue
	}
}

// evictLongLocked makes room of one counter of a long algorithm. It reports whether
// there was one.
func (s *Shard) evictLongLocked(p *partition, group []Take) bool {
	v := victims{heavyToo: true, over: over(p.latest)}
	var victim *longEntry
	for k, e := range p.long { // begins at a random place
		if slices.ContainsFunc(group, func(t Take) bool { return t.Key == k }) {
			continue
		}
		best, more := v.compare(e.usage)
		if best {
			victim = e
		}
		if !more {
			break
		}
	}
	if v.few == 0 {
		return false
	}
	s.deleteLongLocked(p, victim)
	if v.best.expires <= v.over {
		s.metrics.expired.Inc()
	} else {
		s.metrics.evicted.Inc()
	}
	return true
}
