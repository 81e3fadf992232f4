package shard

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// partition is one table and its lock. It fills two cache lines, so that two partitions' locks never share
// one, and the fields that every decision reads are in the first.
type partition struct {
	mu     sync.Mutex
	latest int64 // the latest instant of a decision; guarded by mu

	heat     uint32 // see Heat; guarded by mu
	sealed   bool   // see Seal; guarded by mu
	withheld bool   // see Withhold; guarded by mu
	followed bool   // there are followers; guarded by mu
	urgent   bool   // one of them wants to be given changes at once; guarded by mu
	table    table  // guarded by mu

	long    map[ring.Key]*longEntry // counters of long algorithms, nil before the first; guarded by mu
	memory  *memory                 // what else is known of some counters, or nil; guarded by mu
	sharing uint32                  // the last usage.expires of a counter that many share; guarded by mu
	stale   uint8                   // followers of which counters may have marks that no backlog has, one bit each; guarded by mu
	follows [followers]*backlog     // guarded by mu
	copied  *copied                 // the state that only a copy has, or nil; guarded by mu
}

// stateLocked returns the state of the counter of t, with its token leases. e is its slot, nil if it has
// none of its own; the counter may then be a shared one.
func (s *Shard) stateLocked(p *partition, e *slot, t *Take) (state algorithms.State) {
	if e == nil && p.sharing > over(p.latest) {
		e = p.table.find(s.arena, sharedKey(&t.Limit))
	}
	if e != nil {
		state = e.state
	}
	if p.memory != nil {
		return p.heldLocked(t, state)
	}
	return state
}

// heldLocked returns state, of the counter of t, with its token leases counted.
func (p *partition) heldLocked(t *Take, state algorithms.State) algorithms.State {
	return p.accountLocked(t.Key).hold(&t.Limit, state, p.latest)
}

// usage is what sweeping and eviction compare.
type usage struct {
	expires uint32 // when the counter is empty again, in Unix seconds, rounded up, above 0
	share   uint16 // of the limit's capacity, as of the last take: 0 to whole, a multiple of marks+1
}

// usageOf returns the usage of a counter after t.
func usageOf(t *Take) usage { return usage{seconds(t.Decision.ResetAt), shareOf(t)} }

// seconds returns an instant in Unix nanoseconds in seconds, rounded up.
func seconds(at int64) uint32 {
	s := at / int64(time.Second)
	if at%int64(time.Second) > 0 {
		s++
	}
	return uint32(min(max(s, 1), math.MaxUint32))
}

// over returns the latest usage.expires of an expired counter.
func over(now int64) uint32 { return uint32(min(now/int64(time.Second), math.MaxUint32-1)) }

// clockLocked returns now, or the latest instant that the partition has seen if
// another goroutine read the clock later and got the lock earlier: within a
// partition time never goes backwards.
func (p *partition) clockLocked(now int64) int64 {
	p.latest = max(p.latest, now)
	return p.latest
}

// putLocked stores state, the result of t, in e, its counter's slot; nil if the key has none yet.
func (s *Shard) putLocked(p *partition, e *slot, key ring.Key, t *Take, state algorithms.State) {
	share := shareOf(t)
	if key != t.Key {
		share = whole // the keys that share it shall not evict it
		p.sharing = max(p.sharing, seconds(t.Decision.ResetAt))
	}
	if e != nil {
		e.state, e.expires, e.share = state, e.secondsOf(t.Decision.ResetAt), share|e.share&marks
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

// droppedLocked counts n deleted entries.
func (s *Shard) droppedLocked(n int) {
	if n > 0 {
		s.counters.Add(int64(-n))
		s.metrics.expired.Add(float64(n))
	}
}

// keepLocked extends the expiry of an entry that t has not changed, which is needed if its limit was
// lowered.
func (s *Shard) keepLocked(p *partition, e *slot, t *Take) {
	if until := e.secondsOf(t.Decision.ResetAt); until > e.expires {
		e.expires = until
		s.listChangeLocked(p, e)
	}
}

// secondsOf is seconds, without the division if s has the result already.
func (s *slot) secondsOf(at int64) uint32 {
	if early := int64(s.expires)*int64(time.Second) - at; early >= 0 && early < int64(time.Second) {
		return s.expires
	}
	return seconds(at)
}

func (s *Shard) deleteLocked(p *partition, key ring.Key) {
	if p.followed {
		if e := p.table.find(s.arena, key); e != nil {
			s.listLocked(p, e, false)
		}
	}
	s.dropLocked(p, key)
}

// dropLocked deletes a counter without listing it for followers.
func (s *Shard) dropLocked(p *partition, key ring.Key) {
	if p.table.remove(s.arena, key) {
		s.counters.Add(-1)
	}
}

// lookLocked returns the decision that t would get, and counts nothing.
func (s *Shard) lookLocked(p *partition, t *Take, now int64) (d algorithms.Decision) {
	if t.Limit.Algorithm.Long() {
		return s.lookLongLocked(p, t, now)
	}
	_, d = algorithms.Step(&t.Limit, s.stateLocked(p, p.table.find(s.arena, t.Key), t), now, 0)
	return d
}

// returnLocked undoes one take. The entry then expires later than it needs to, and eviction takes its share
// for larger than it is; both are harmless.
func (s *Shard) returnLocked(p *partition, t *Take, now int64) {
	if t.Limit.Algorithm.Long() {
		s.returnLongLocked(p, t, now)
		return
	}
	e := p.table.find(s.arena, t.Key)
	if e == nil {
		return
	}
	defer s.listChangeLocked(p, e)
	defer s.advanceLeasesLocked(p, t.Key, now)
	if state, known := s.rewriteLocked(p, t); known {
		e.state = state
		return
	}
	s.forgetLocked(p, t.Key) // the history does not include this change
	before := s.stateLocked(p, e, t)
	if t.Cost >= 0 {
		e.state = algorithms.Return(&t.Limit, before, now, t.Decision.At, t.Cost)
	} else if state, d := algorithms.Step(&t.Limit, before, now, -t.Cost); d.Allowed {
		e.state, e.expires = state, max(e.expires, seconds(d.ResetAt))
	}
}

// lock locks the partitions that the group touches, each once and in the order
// of their addresses in the slice, so that two groups never wait for each other.
// It appends them to buf, and returns the one instant for the whole group: now, or
// the latest that one of them has seen.
func (s *Shard) lock(g *Group, now int64, buf []*partition) ([]*partition, int64) {
	var few [8]uint32
	indices := slices.Grow(few[:0], len(g.Takes))
	buf = slices.Grow(buf, len(g.Takes))
	for i := range g.Takes {
		indices = append(indices, g.Takes[i].Key.Partition(uint32(len(s.partitions))))
	}
	slices.Sort(indices)
	for _, i := range slices.Compact(indices) {
		p := &s.partitions[i]
		p.mu.Lock()
		p.heat++
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

// Heat returns the number of groups decided in partition p lately; each round of the sweeper halves it.
func (s *Shard) Heat(p uint32) uint64 {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return uint64(x.heat)
}

// Probe returns once the lock of every partition was free for a moment, and never if one is stuck.
func (s *Shard) Probe() {
	for i := range s.partitions {
		p := &s.partitions[i]
		p.mu.Lock()
		p.mu.Unlock() //nolint:staticcheck // that it was free is the answer
	}
}

// Count returns how many counters partition p has, as Len counts them.
func (s *Shard) Count(p uint32) int {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.table.n + len(x.long)
}

// memory is what a partition knows of counters in addition to their states.
type memory struct {
	histories     map[ring.Key]*history // of buckets with tentative takes
	leaseAccounts map[ring.Key]*account // of token leases
}

func (p *partition) histories() map[ring.Key]*history {
	if p.memory == nil {
		return nil
	}
	return p.memory.histories
}

func (p *partition) ensureMemory() *memory {
	if p.memory == nil {
		p.memory = &memory{}
	}
	return p.memory
}

// tidyMemoryLocked drops an empty memory.
func (p *partition) tidyMemoryLocked() {
	if m := p.memory; m != nil && len(m.histories)+len(m.leaseAccounts) == 0 {
		p.memory = nil
	}
}
