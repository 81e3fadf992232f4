package shard

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the search for a counter to evict.
const (
	evictScan = 64 // counters visited
	evictFew  = 16 // counters compared, if that many could be evicted
)

// sharedKey is the key of the counter shared by all keys of a partition that have the same limit and no
// counter of their own. It is the same on every node.
func sharedKey(l *algorithms.Limit) ring.Key {
	var few [128]byte
	b := append(few[:0], byte(l.Algorithm))
	// MaxDelay is left out: it differs between callers.
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
	whole = math.MaxUint16 &^ marks // the share of a counter at its limit
	heavy = 1 << 15                 // counters with at least this share are not evicted for others
)

// shareOf returns the share of its limit that a counter has used after t. A counter that owes tokens,
// because its limit was lowered or because a caller waits for its turn, has share whole.
func shareOf(t *Take) uint16 {
	capacity := max(1, t.Limit.Room())
	used := min(capacity, capacity-t.Decision.Remaining)
	return uint16((used*math.MaxUint16+capacity-1)/capacity) &^ marks
}

// keyLocked returns the key under which to count t, which takes something and has no counter yet: its own,
// or a shared key if there is neither room nor a counter to evict. A victim must be evicted before a
// counter is added. A group, which is not nil, evicts only once its takes stay, and adds at most as many
// counters before that as fit into the table.
func (s *Shard) keyLocked(p *partition, t *Take, group *exemptGroup) (key ring.Key, victim cursor, full bool) {
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

// victims compares counters to find the one to evict: an expired one, or else the one that has used the
// least of its limit, which loses the least by starting from zero.
type victims struct {
	heavyToo bool // counts those that have used half of their limit or more
	over     uint32
	best     usage
	few      int // compared so far
}

// compare looks at one more counter. best reports whether it is the best so far, and more whether to
// continue.
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

// exemptGroup is the counters of a group, which are not evicted for each other: they are usually the least
// used of all, and would never count anything.
type exemptGroup struct {
	takes []Take
	highs []uint64 // of slots, sorted; nil before the first use
}

func (x *exemptGroup) has(e *slot) bool {
	if x == nil {
		return false
	}
	if x.highs == nil {
		for i := range x.takes {
			x.highs = append(x.highs, ^x.takes[i].Key.Hi)
		}
		slices.Sort(x.highs)
	}
	_, found := slices.BinarySearch(x.highs, e.hi)
	return found
}

// victimLocked returns the place of the counter to evict, close to near, the key that needs the room: its
// neighbours are as random as any, and in the processor's cache.
func (s *Shard) victimLocked(p *partition, near ring.Key, group *exemptGroup, heavyToo bool) (place cursor, found bool) {
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

// Evicted returns the number of live counters dropped for lack of memory since the start.
func (s *Shard) Evicted() uint64 { return s.evicted.Load() }

func (s *Shard) countEvicted() {
	s.evicted.Add(1)
	s.metrics.evicted.Inc()
}

// evictLocked makes room.
func (s *Shard) evictLocked(p *partition, victim cursor) {
	if e := victim.next(s.arena); e.expires <= over(p.latest) {
		s.metrics.expired.Inc()
	} else {
		s.listChangeLocked(p, e)
		s.countEvicted()
	}
	p.table.removeAt(s.arena, victim)
	s.counters.Add(-1)
}
