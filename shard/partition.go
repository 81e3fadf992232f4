package shard

import (
	"hash/maphash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the work that is done under one partition's lock.
const (
	sweepTick  = 100 * time.Millisecond // how often the sweeper wakes
	sweepRound = 10 * time.Second       // how long it takes to visit every partition
	sweepStep  = 256                    // entries visited before the lock is let go
	evictScan  = 64                     // entries visited to find one to evict
	evictFew   = 16                     // entries compared, if so many could be evicted
)

// partition is one table and its lock. What a decision looks at fills a cache line, so
// that two partitions' locks never share one.
type partition struct {
	mu     sync.Mutex
	latest int64 // the latest instant of a decision; guarded by mu
	table  table // guarded by mu

	long      map[ring.Key]*longEntry // of long algorithms, nil before the first; guarded by mu
	histories map[ring.Key]*history   // of buckets from which was taken tentatively, or nil; guarded by mu
	sharing   uint32                  // the last usage.expires of a counter that many share; guarded by mu
	_         [128 - 96]byte
}

// stateLocked returns the state of the counter of t, of which e is nil if it has none of its
// own. Then it may have been counted together with others.
func (s *Shard) stateLocked(p *partition, e *slot, t *Take) algorithms.State {
	if e == nil && p.sharing > over(p.latest) {
		e = p.table.find(s.arena, s.sharedKey(&t.Limit))
	}
	if e == nil {
		return algorithms.State{}
	}
	return e.state
}

// sharedKey is the key of the counter that all in a partition share that have the same limit
// and no counter of their own.
func (s *Shard) sharedKey(l *algorithms.Limit) ring.Key {
	return ring.Key{Hi: maphash.Comparable(s.seed, *l)}
}

// usage is what sweeping and eviction go by.
type usage struct {
	expires uint32 // when the counter weighs nothing any more, in Unix seconds, rounded up, above 0
	share   uint16 // of the limit's capacity that is used, as of the last take, in 1/65535, rounded up
}

// heavy is the share from which on a counter does not make room for another one.
const heavy = 1 << 15

// usageOf returns the usage of a counter after t.
func usageOf(t *Take) usage { return usage{seconds(t.Decision.ResetAt), shareOf(t)} }

// shareOf returns the share that a counter has used after t. One that owes, because its
// limit was lowered or because somebody waits for his turn, has used all of its
// capacity, not more.
func shareOf(t *Take) uint16 {
	capacity := max(1, t.Limit.Capacity())
	used := min(capacity, capacity-t.Decision.Remaining)
	return uint16((used*math.MaxUint16 + capacity - 1) / capacity)
}

// seconds returns an instant in Unix nanoseconds in seconds, rounded up.
func seconds(at int64) uint32 {
	s := at / int64(time.Second)
	if at%int64(time.Second) > 0 {
		s++
	}
	return uint32(min(max(s, 1), math.MaxUint32))
}

// over returns the latest usage.expires of what weighs nothing any more.
func over(now int64) uint32 { return uint32(min(now/int64(time.Second), math.MaxUint32-1)) }

// clockLocked returns now, or the latest instant that the partition has seen if
// another goroutine read the clock later and got the lock earlier: within a
// partition time never goes backwards.
func (p *partition) clockLocked(now int64) int64 {
	p.latest = max(p.latest, now)
	return p.latest
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
	key = s.sharedKey(&t.Limit)
	if p.table.brimful() && p.table.find(s.arena, key) == nil {
		victim, full = s.victimLocked(p, key, group, true)
	}
	return key, victim, full
}

// putLocked keeps what a take has made of e, its counter's entry, nil if there is none
// under the key yet.
func (s *Shard) putLocked(p *partition, e *slot, key ring.Key, t *Take, state algorithms.State) {
	share := shareOf(t)
	if key != t.Key {
		share = math.MaxUint16 // those that it was made for shall not evict it
		p.sharing = max(p.sharing, seconds(t.Decision.ResetAt))
	}
	if e != nil {
		e.state, e.expires, e.share = state, e.secondsOf(t.Decision.ResetAt), share
		return
	}
	s.addLocked(p, newSlot(key, state, usage{seconds(t.Decision.ResetAt), share}))
}

// addLocked adds a counter that is not there.
func (s *Shard) addLocked(p *partition, e slot) {
	dropped, ok := p.table.add(s.arena, e, over(p.latest))
	s.droppedLocked(dropped)
	if ok {
		s.counters.Add(1)
	} else {
		s.metrics.evicted.Inc()
	}
}

// droppedLocked counts entries that were over.
func (s *Shard) droppedLocked(n int) {
	if n > 0 {
		s.counters.Add(int64(-n))
		s.metrics.expired.Add(float64(n))
	}
}

// keepLocked keeps an entry, which t has not changed, for as long as it weighs: that
// is longer than it was if its limit was lowered.
func (s *slot) keepLocked(t *Take) { s.expires = max(s.expires, s.secondsOf(t.Decision.ResetAt)) }

// secondsOf is seconds, and spares the division if that is what s has already.
func (s *slot) secondsOf(at int64) uint32 {
	if early := int64(s.expires)*int64(time.Second) - at; early >= 0 && early < int64(time.Second) {
		return s.expires
	}
	return seconds(at)
}

func (s *Shard) deleteLocked(p *partition, key ring.Key) {
	if p.table.remove(s.arena, key) {
		s.counters.Add(-1)
	}
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
	if victim.next(s.arena).expires <= over(p.latest) {
		s.metrics.expired.Inc()
	} else {
		s.metrics.evicted.Inc()
	}
	p.table.removeAt(s.arena, victim)
	s.counters.Add(-1)
}

// evictLongLocked makes room of one counter of a long algorithm. It reports whether
// there was one.
func (s *Shard) evictLongLocked(p *partition, group []Take) bool {
	v := victims{heavyToo: true, over: over(p.latest)}
	var key ring.Key
	for k, e := range p.long { // begins at a random place
		if slices.ContainsFunc(group, func(t Take) bool { return t.Key == k }) {
			continue
		}
		best, more := v.compare(e.usage)
		if best {
			key = k
		}
		if !more {
			break
		}
	}
	if v.few == 0 {
		return false
	}
	s.deleteLongLocked(p, key)
	if v.best.expires <= v.over {
		s.metrics.expired.Inc()
	} else {
		s.metrics.evicted.Inc()
	}
	return true
}

// sweep deletes the partition's expired entries, and goes on with what else there is to
// do for its table. It lets go of the lock every few entries, and then goes on behind the
// last key.
func (s *Shard) sweep(p *partition) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := over(p.clockLocked(s.now())) // so that nobody decides at an instant before it
	for next, more := uint64(0), true; more; p.breathe() {
		next, more = s.sweepLocked(p, next, now)
	}
	for p.table.tidy(s.arena); p.table.moving != nil; p.breathe() {
		before := p.table.moving.from
		s.droppedLocked(p.table.move(s.arena, sweepStep, now))
		if p.table.moving != nil && p.table.moving.from == before {
			break // no memory
		}
	}
	s.forgetHistoriesLocked(p, p.latest)
	visited := 0
	for key, e := range p.long { // a range may be continued after others have changed it
		if e.expires <= now {
			s.deleteLongLocked(p, key)
			s.metrics.expired.Inc()
		}
		if visited++; visited%sweepStep == 0 {
			p.breathe()
		}
	}
}

// sweepLocked visits a few slots from a key's high half on, and deletes those that are over at
// now. It returns where to go on, if there are more.
func (s *Shard) sweepLocked(p *partition, from uint64, now uint32) (next uint64, more bool) {
	c := p.table.seek(s.arena, from)
	dropped := 0
	defer func() { s.droppedLocked(dropped) }()
	for visited := 0; visited < sweepStep || c.i >= c.r.homes; visited++ {
		if c.i >= c.r.end() {
			if !c.turn() {
				return 0, false
			}
			continue
		}
		switch e := c.r.slot(s.arena, c.i); {
		case e.expires == 0:
			c.i++
			if c.i < c.r.homes {
				next = c.r.firstAt(c.i) // nothing that comes later belongs before it
			}
		case e.expires <= now:
			next = ^e.hi
			p.table.removeAt(s.arena, c)
			dropped++
		default:
			if next = ^e.hi + 1; next == 0 {
				return 0, false
			}
			c.i++
		}
	}
	return next, true
}

// breathe lets others have the lock.
func (p *partition) breathe() {
	p.mu.Unlock()
	p.mu.Lock()
}

// lookLocked says what there is of t's counter.
func (s *Shard) lookLocked(p *partition, t *Take, now int64) (d algorithms.Decision) {
	if t.Limit.Algorithm.Long() {
		return s.lookLongLocked(p, t, now)
	}
	_, d = algorithms.Step(&t.Limit, s.stateLocked(p, p.table.find(s.arena, t.Key), t), now, 0)
	return d
}

// returnLocked undoes one take. The entry expires later than it needs to then, or
// has used more than eviction knows, which is harmless.
func (s *Shard) returnLocked(p *partition, t *Take, now int64) {
	if t.Limit.Algorithm.Long() {
		s.returnLongLocked(p, t, now)
		return
	}
	e := p.table.find(s.arena, t.Key)
	if e == nil {
		return
	}
	if state, known := s.rewriteLocked(p, t); known {
		e.state = state
		return
	}
	s.forgetLocked(p, t.Key) // which know nothing of this
	if t.Cost >= 0 {
		e.state = algorithms.Return(&t.Limit, e.state, now, t.Decision.At, t.Cost)
	} else if state, d := algorithms.Step(&t.Limit, e.state, now, -t.Cost); d.Allowed {
		e.state, e.expires = state, max(e.expires, seconds(d.ResetAt))
	}
}

// lock locks the partitions that the group touches, each once and in the order
// of their addresses in the slice, so that two groups never wait for each other.
// It appends them to buf, and returns the one instant for the whole group: now, or
// the latest that one of them has seen.
func (s *Shard) lock(g *Group, now int64, buf []*partition) ([]*partition, int64) {
	var few [8]uint32
	indices := few[:0]
	for i := range g.Takes {
		indices = append(indices, g.Takes[i].Key.Partition(uint32(len(s.partitions))))
	}
	slices.Sort(indices)
	for _, i := range slices.Compact(indices) {
		p := &s.partitions[i]
		p.mu.Lock()
		now = p.clockLocked(now)
		buf = append(buf, p)
	}
	for _, p := range buf {
		p.latest = now
	}
	return buf, now
}

func unlock(partitions []*partition) {
	for _, p := range partitions {
		p.mu.Unlock()
	}
}
