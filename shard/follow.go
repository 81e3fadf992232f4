package shard

import (
	"time"

	"github.com/weirlimit/weir/ring"
)

// Follower says for whom the changes of a partition are tracked.
type Follower uint8

// The followers that a partition may have. For each, slots have a mark.
const (
	// ToStandby is the node that stands by. It is spared counters that will be over before
	// it would need them, and told at once of those that many tokens were taken from.
	ToStandby Follower = 0
	// ToMover is the node that the partition moves to. It is told everything.
	ToMover Follower = 1

	followers = 2
	marks     = 1<<followers - 1
)

// Bounds of what is remembered for a follower.
const (
	// maxChanges is of how many keys of one partition it is remembered that they have changed. A
	// follower that is further behind is given everything again.
	maxChanges = 4096
	// brief is how much longer than the take a counter must matter for a standby to be told.
	brief = 300 * time.Millisecond
	// urgentShares are the parts of a limit of which a standby should know each at once.
	urgentShares = 20
)

// follower is what one follower of a partition has not been given yet: what lies ahead of a
// scan, which goes through the table by key and once round its end, and what has changed
// elsewhere. A key whose slot has the follower's mark is listed, or ahead.
type follower struct {
	list []ring.Key // what has changed since, or is gone, as far as slots know their keys

	scanning  bool
	wrapped   bool   // has been at the end of the table
	next, end uint64 // high halves of the keys at which the scan is, and will end

	longs []*longEntry // in the order in which they have changed
	// Around all counters of long algorithms that there were when the follower began, it is told that
	// they are all.
	beginLongs, endLongs bool

	last kind // of what it was given last

	_ [128 - 80]byte // so that what every take looks at lies in one cache line
}

// kind is one of the kinds of what a follower is given. They take turns: however much changes all
// the time, it is also given what does not.
type kind uint8

const (
	nothing kind = iota
	changed
	scanned
	long
	kinds
)

// Follow tracks changes of partition p for follower f, which is given everything that is there
// first. If f follows already, it begins again.
func (s *Shard) Follow(p uint32, f Follower) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.follows[f] = &follower{}
	x.followed = true
	x.startOverLocked(f)
	x.startLongsOverLocked(f)
}

// Unfollow ends that.
func (s *Shard) Unfollow(p uint32, f Follower) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.follows[f] = nil
	x.followed = x.follows[ToStandby] != nil || x.follows[ToMover] != nil
}

// Follows reports whether f follows partition p.
func (s *Shard) Follows(p uint32, f Follower) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.follows[f] != nil
}

// startOverLocked has follower f given every slot from where its scan is, once round.
func (p *partition) startOverLocked(f Follower) {
	x := p.follows[f]
	x.list = x.list[:0]
	x.scanning, x.wrapped, x.end = true, false, x.next
}

// startLongsOverLocked has follower f given every counter of a long algorithm.
func (p *partition) startLongsOverLocked(f Follower) {
	x := p.follows[f]
	x.longs, x.beginLongs, x.endLongs = make([]*longEntry, 0, len(p.long)), true, false
	for _, e := range p.long {
		e.marks |= 1 << f
		x.longs = append(x.longs, e)
	}
}

// has reports whether there is anything of a kind that the follower has not been given.
func (x *follower) has(k kind) bool {
	switch k {
	case changed:
		return len(x.list) > 0
	case scanned:
		return x.scanning
	case long:
		return len(x.longs) > 0 || x.beginLongs || x.endLongs
	default:
		return false
	}
}

// left reports whether there is anything that the follower has not been given.
func (x *follower) left() bool { return x.has(changed) || x.has(scanned) || x.has(long) }

// nextKind returns of which kind the follower is given something next.
func (x *follower) nextKind() kind {
	for range kinds {
		if x.last = (x.last + 1) % kinds; x.has(x.last) {
			return x.last
		}
	}
	return nothing
}

// ahead reports whether a key with that high half lies ahead of the scan.
func (x *follower) ahead(hi uint64) bool {
	switch {
	case !x.scanning:
		return false
	case x.wrapped:
		return x.next <= hi && hi < x.end
	default:
		return x.next <= hi || hi < x.end
	}
}

// changedLocked has all followers told of e, which has changed or is going to be deleted.
func (s *Shard) changedLocked(p *partition, e *slot) {
	if p.followed {
		s.listLocked(p, e, ToStandby)
	}
}

// listLocked has the followers from f on told of e.
func (s *Shard) listLocked(p *partition, e *slot, f Follower) {
	for ; f < followers; f++ {
		x := p.follows[f]
		if x == nil || e.share&(1<<f) != 0 || x.ahead(^e.hi) {
			continue
		}
		if len(x.list) == maxChanges {
			p.startOverLocked(f)
			s.metrics.restarts.Inc()
			continue
		}
		x.list = append(x.list, e.key())
		e.share |= 1 << f
	}
}

// listLongLocked is listLocked for a counter of a long algorithm.
func (s *Shard) listLongLocked(p *partition, e *longEntry, f Follower) {
	for ; f < followers; f++ {
		x := p.follows[f]
		if x == nil || e.marks&(1<<f) != 0 {
			continue
		}
		if len(x.longs) >= maxChanges+len(p.long) { // those that are there are in it once at most
			p.startLongsOverLocked(f)
			s.metrics.restarts.Inc()
			continue
		}
		x.longs = append(x.longs, e)
		e.marks |= 1 << f
	}
}

// tellLocked has the followers of p told of what t has made of the counter under key, whose slot
// is e, or not known. It reports whether the standby should be told at once.
func (s *Shard) tellLocked(p *partition, e *slot, key ring.Key, t *Take) (urgent bool) {
	f := ToStandby
	if t.Brief() {
		f = ToMover
	}
	if t.Limit.Algorithm.Long() {
		s.listLongLocked(p, p.long[key], f)
	} else {
		if e == nil {
			e = p.table.find(s.arena, key)
		}
		if e == nil { // there was no memory for it
			return false
		}
		s.listLocked(p, e, f)
	}
	return p.follows[ToStandby] != nil && t.urgent()
}

// Brief reports whether a standby need not know of t, which has taken something. What gives
// something back may leave a counter that matters no more where the standby has one that does.
func (t *Take) Brief() bool {
	return t.Cost > 0 && t.Decision.ResetAt-t.Decision.At < int64(brief)
}

// urgent reports whether t has taken its counter over one of the parts of its limit.
func (t *Take) urgent() bool {
	if t.Cost <= 0 || !t.Decision.Allowed || t.Brief() {
		return false
	}
	capacity := t.Limit.Capacity() // not 0, or t were not allowed
	used := capacity - t.Decision.Remaining
	return used*urgentShares/capacity != (used-t.Cost)*urgentShares/capacity
}

// OnUrgent has f called, by whoever decides, after a take because of which ToStandby should be
// given the Changes of a partition at once: one that has brought a counter over a multiple of
// a twentieth of its limit. Beside such a take, f may be told of partitions of the same
// group that nobody follows. It must not block. No lock is held then.
func (s *Shard) OnUrgent(f func(p uint32)) { s.urgent.Store(&f) }

func (s *Shard) urge(key ring.Key) {
	if f := s.urgent.Load(); f != nil {
		(*f)(key.Partition(uint32(len(s.partitions))))
	}
}
