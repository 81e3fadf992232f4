package shard

import (
	"math/rand/v2"
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
	table  table                   // guarded by mu
	latest int64                   // the latest instant of a decision; guarded by mu
	long   map[ring.Key]*longEntry // of long algorithms, nil before the first; guarded by mu
	_      [64 - 56]byte
}

// entry is what is kept of one counter.
type entry struct {
	state algorithms.State
	usage
}

// stateOf returns the state of a counter, also of one that is not there.
func stateOf(e *entry) algorithms.State {
	if e == nil {
		return algorithms.State{}
	}
	return e.state
}

// usage is what sweeping and eviction go by.
type usage struct {
	expires int64  // when the counter weighs nothing any more, in Unix nanoseconds, above 0
	used    uint32 // of limit, as of the last take
	limit   uint32 // the limit's capacity
}

// usageOf returns the usage of a counter after t. One that owes, because its limit was
// lowered or because somebody waits for his turn, has used all of its capacity, not
// more.
func usageOf(t *Take) usage {
	capacity := t.Limit.Capacity()
	return usage{expires: max(1, t.Decision.ResetAt), used: uint32(capacity - t.Decision.Remaining), limit: uint32(capacity)}
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

// putLocked keeps what a take has made of e, its counter's entry, nil if there is none.
func (s *Shard) putLocked(p *partition, e *entry, t *Take, state algorithms.State) {
	if e != nil {
		*e = entry{state, usageOf(t)}
		return
	}
	s.counters.Add(1)
	p.table.add(t.Key, entry{state, usageOf(t)})
}

// keepLocked keeps an entry, which t has not changed, for as long as it weighs: that
// is longer than it was if its limit was lowered.
func (e *entry) keepLocked(t *Take) { e.expires = max(e.expires, t.Decision.ResetAt) }

func (s *Shard) deleteLocked(p *partition, key ring.Key) {
	p.table.remove(key)
	s.counters.Add(-1)
}

// victim finds out which of a few counters is to make room: an expired one, or else
// the one that has used the least of its limit, which loses the least by starting
// afresh. It is none of those that room is made for: they are the least used of all as
// a rule, and would never count anything.
type victim struct {
	spared  []Take // those that room is made for
	key     ring.Key
	usage   usage
	expired bool
	probed  int
}

// probe looks at one more counter. It is false once there is no need for another.
func (v *victim) probe(key ring.Key, u usage, now int64) (more bool) {
	if slices.ContainsFunc(v.spared, func(t Take) bool { return t.Key == key }) {
		return true
	}
	v.expired = u.expires <= now
	if v.expired || v.probed == 0 || u.lessThan(v.usage) {
		v.key, v.usage = key, u
	}
	v.probed++
	return !v.expired && v.probed < evictProbe
}

// evictLocked makes room for one counter, if there is another one than those of the
// takes.
func (s *Shard) evictLocked(p *partition, spared []Take) {
	v := victim{spared: spared}
	slots := p.table.slots
	begin := rand.IntN(max(1, len(slots)))
	for i := range slots {
		e := &slots[(begin+i)%len(slots)]
		if e.expires != 0 && !v.probe(e.key, e.usage, p.latest) {
			break
		}
	}
	if v.probed == 0 {
		s.evictLongLocked(p, spared)
		return
	}
	s.deleteLocked(p, v.key)
	if !v.expired {
		s.metrics.evicted.Inc()
	}
}

// evictLongLocked makes room of one counter of a long algorithm. It reports whether
// there was one.
func (s *Shard) evictLongLocked(p *partition, spared []Take) bool {
	v := victim{spared: spared}
	for key, e := range p.long { // begins at a random place
		if !v.probe(key, e.usage, p.latest) {
			break
		}
	}
	if v.probed == 0 {
		return false
	}
	s.deleteLongLocked(p, v.key)
	if !v.expired {
		s.metrics.evicted.Inc()
	}
	return true
}

// sweep deletes the partition's expired entries. It lets go of the lock every few
// entries, and then goes on where it was: whatever has moved meanwhile is visited in
// the next round.
func (s *Shard) sweep(p *partition) {
	now := s.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, visited := 0, 0; i < len(p.table.slots); {
		if e := &p.table.slots[i]; e.expires != 0 && e.expires <= now {
			p.table.removeAt(i) // and look again at i, where another may have moved up
			s.counters.Add(-1)
			s.metrics.expired.Inc()
		} else {
			i++
		}
		if visited++; visited%sweepStep == 0 {
			p.breathe()
		}
	}
	p.table.tidy()
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
	_, d = algorithms.Step(&t.Limit, stateOf(p.table.find(t.Key)), now, 0)
	return d
}

// returnLocked undoes one take. The entry expires later than it needs to then, or
// has used more than eviction knows, which is harmless.
func (s *Shard) returnLocked(p *partition, t *Take, now int64) {
	if t.Limit.Algorithm.Long() {
		s.returnLongLocked(p, t, now)
		return
	}
	e := p.table.find(t.Key)
	if e == nil {
		return
	}
	if t.Cost >= 0 {
		e.state = algorithms.Return(&t.Limit, e.state, now, t.Decision.At, t.Cost)
	} else if state, d := algorithms.Step(&t.Limit, e.state, now, -t.Cost); d.Allowed {
		e.state, e.expires = state, max(e.expires, d.ResetAt)
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
