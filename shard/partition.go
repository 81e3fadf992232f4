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
	table  map[ring.Key]entry // guarded by mu
	latest int64              // the latest instant of a decision; guarded by mu
	_      [64 - 24]byte
}

// entry is what is kept of one counter.
type entry struct {
	state   algorithms.State
	expires int64  // when state weighs nothing any more, in Unix nanoseconds
	used    uint32 // of limit, as of the last take; what eviction goes by
	limit   uint32 // the limit's capacity
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
	// A counter that owes, because its limit was lowered or because somebody waits
	// for his turn, has nothing remaining: it has used all of its capacity, not more.
	p.table[t.Key] = entry{
		state:   state,
		expires: t.Decision.ResetAt,
		used:    uint32(t.Limit.Capacity() - t.Decision.Remaining),
		limit:   uint32(t.Limit.Capacity()),
	}
}

func (s *Shard) deleteLocked(p *partition, key ring.Key) {
	delete(p.table, key)
	s.counters.Add(-1)
}

// evictLocked makes room for one counter: of a few that it comes across, an
// expired one, or else the one that has used the least of its limit, which
// loses the least by starting afresh.
func (s *Shard) evictLocked(p *partition) {
	var victim ring.Key
	var least entry
	probed := 0
	for key, e := range p.table { // begins at a random place
		if e.expires <= p.latest {
			s.deleteLocked(p, key)
			return
		}
		// used/limit < least.used/least.limit
		if probed == 0 || uint64(e.used)*uint64(least.limit) < uint64(least.used)*uint64(e.limit) {
			victim, least = key, e
		}
		if probed++; probed == evictProbe {
			break
		}
	}
	if probed > 0 {
		s.deleteLocked(p, victim)
		s.metrics.evicted.Inc()
	}
}

// sweep deletes the partition's expired entries. It lets go of the lock every few
// entries; a range over a map may be continued after others have changed it.
func (s *Shard) sweep(p *partition) {
	now := s.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	visited := 0
	for key, e := range p.table {
		if e.expires <= now {
			s.deleteLocked(p, key)
			s.metrics.expired.Inc()
		}
		if visited++; visited%sweepStep == 0 {
			p.mu.Unlock()
			p.mu.Lock()
		}
	}
}

// returnLocked undoes one take. The entry expires later than it needs to then, or
// has used more than eviction knows, which is harmless.
func (p *partition) returnLocked(t *Take, now int64) {
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
