package shard

import (
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
	evictProbe = 8                      // entries compared to find one to evict
)

// partition is one table and its lock. It fills a cache line, so that two
// partitions' locks never share one.
type partition struct {
	mu     sync.Mutex
	table  map[ring.Key]entry      // guarded by mu
	latest int64                   // the latest instant of a decision; guarded by mu
	long   map[ring.Key]*longEntry // of long algorithms, nil before the first; guarded by mu
	_      [64 - 32]byte
}

// entry is what is kept of one counter.
type entry struct {
	state algorithms.State
	usage
}

// usage is what sweeping and eviction go by.
type usage struct {
	expires int64  // when the counter weighs nothing any more, in Unix nanoseconds
	used    uint32 // of limit, as of the last take
	limit   uint32 // the limit's capacity
}

// usageOf returns the usage of a counter after t. One that owes, because its limit was
// lowered or because somebody waits for his turn, has used all of its capacity, not
// more.
func usageOf(t *Take) usage {
	capacity := t.Limit.Capacity()
	return usage{expires: t.Decision.ResetAt, used: uint32(capacity - t.Decision.Remaining), limit: uint32(capacity)}
}

// lessThan reports whether u has used less of its limit than v.
func (u usage) lessThan(v usage) bool {
	return uint64(u.used)*uint64(v.limit) < uint64(v.used)*uint64(u.limit)
}

// clockLocked returns now, or the latest instant that the partition has seen if
// another goroutine read the clock later and got the lock earlier: within a
// partition time never goes backwards.
func (p *partition) clockLocked(now int64) int64 {
	p.latest = max(p.latest, now)
	return p.latest
}

func (s *Shard) putLocked(p *partition, t *Take, state algorithms.State, found bool) {
	if !found {
		s.counters.Add(1)
	}
	p.table[t.Key] = entry{state, usageOf(t)}
}

// keepLocked keeps an entry, which t has not changed, for as long as it weighs: that
// is longer than it was if its limit was lowered.
func (p *partition) keepLocked(t *Take, e entry) {
	if t.Decision.ResetAt > e.expires {
		e.expires = t.Decision.ResetAt
		p.table[t.Key] = e
	}
}

func (s *Shard) deleteLocked(p *partition, key ring.Key) {
	delete(p.table, key)
	s.counters.Add(-1)
}

// victim returns which of a few counters that it comes across is to make room: an
// expired one, or else the one that has used the least of its limit, which loses the
// least by starting afresh. It is none of those that room is made for: they are the
// least used of all as a rule, and would never count anything.
func victim[E any](table map[ring.Key]E, of func(E) usage, now int64, spared []Take) (key ring.Key, expired, found bool) {
	var least usage
	probed := 0
	for k, e := range table { // begins at a random place
		if slices.ContainsFunc(spared, func(t Take) bool { return t.Key == k }) {
			continue
		}
		u := of(e)
		if u.expires <= now {
			return k, true, true
		}
		if probed == 0 || u.lessThan(least) {
			key, least = k, u
		}
		if probed++; probed == evictProbe {
			break
		}
	}
	return key, false, probed > 0
}

func usageOfEntry(e entry) usage     { return e.usage }
func usageOfLong(e *longEntry) usage { return e.usage }

// evictLocked makes room for one counter, if there is another one than those of the
// takes.
func (s *Shard) evictLocked(p *partition, spared []Take) {
	key, expired, found := victim(p.table, usageOfEntry, p.latest, spared)
	if !found {
		s.evictLongLocked(p, spared)
		return
	}
	s.deleteLocked(p, key)
	if !expired {
		s.metrics.evicted.Inc()
	}
}

// evictLongLocked makes room of one counter of a long algorithm. It reports whether
// there was one.
func (s *Shard) evictLongLocked(p *partition, spared []Take) bool {
	key, expired, found := victim(p.long, usageOfLong, p.latest, spared)
	if !found {
		return false
	}
	s.deleteLongLocked(p, key)
	if !expired {
		s.metrics.evicted.Inc()
	}
	return true
}

// sweep deletes the partition's expired entries. It lets go of the lock every few
// entries; a range over a map may be continued after others have changed it.
func (s *Shard) sweep(p *partition) {
	now := s.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	sweepLocked(p, p.table, usageOfEntry, now, s.expireLocked)
	sweepLocked(p, p.long, usageOfLong, now, s.expireLongLocked)
}

func sweepLocked[E any](p *partition, table map[ring.Key]E, of func(E) usage, now int64, expire func(*partition, ring.Key)) {
	visited := 0
	for key, e := range table {
		if of(e).expires <= now {
			expire(p, key)
		}
		if visited++; visited%sweepStep == 0 {
			p.mu.Unlock()
			p.mu.Lock()
		}
	}
}

func (s *Shard) expireLocked(p *partition, key ring.Key) {
	s.deleteLocked(p, key)
	s.metrics.expired.Inc()
}

func (s *Shard) expireLongLocked(p *partition, key ring.Key) {
	s.deleteLongLocked(p, key)
	s.metrics.expired.Inc()
}

// lookLocked says what there is of t's counter.
func (s *Shard) lookLocked(p *partition, t *Take, now int64) (d algorithms.Decision) {
	if t.Limit.Algorithm.Long() {
		return s.lookLongLocked(p, t, now)
	}
	_, d = algorithms.Step(&t.Limit, p.table[t.Key].state, now, 0)
	return d
}

// returnLocked undoes one take. The entry expires later than it needs to then, or
// has used more than eviction knows, which is harmless.
func (s *Shard) returnLocked(p *partition, t *Take, now int64) {
	if t.Limit.Algorithm.Long() {
		s.returnLongLocked(p, t, now)
		return
	}
	e, found := p.table[t.Key]
	if !found {
		return
	}
	if t.Cost >= 0 {
		e.state = algorithms.Return(&t.Limit, e.state, now, t.Decision.At, t.Cost)
	} else if state, d := algorithms.Step(&t.Limit, e.state, now, -t.Cost); d.Allowed {
		e.state, e.expires = state, max(e.expires, d.ResetAt)
	}
	p.table[t.Key] = e
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
