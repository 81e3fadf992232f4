package shard

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Follower is the kind of node for which the changes of a partition are tracked.
type Follower uint8

// The followers that a partition may have. For each, slots have a mark.
const (
	// ToStandby is the standby. It is not given counters that expire before it would need them, and is
	// given at once those that many tokens were taken from.
	ToStandby Follower = 0
	// ToSuccessor is the node that is about to become the owner. It is given everything.
	ToSuccessor Follower = 1

	followers = 2
	marks     = 1<<followers - 1
)

// Bounds of the memory for a follower.
const (
	// maxChanges bounds the list of changed keys of one partition. A follower that is further behind is
	// given everything again.
	maxChanges = 4096
	// Brief is how much longer than the take a counter must matter to be given to a standby.
	Brief = 300 * time.Millisecond
	// urgentShares is the number of equal parts of a limit; a counter that enters a new part is given to
	// followers at once.
	urgentShares = 20
)

// backlog is the changes that one follower of a partition has not been given yet: the slots ahead of a
// scan, which goes through the table once by key, and the list of other changed keys. A key whose slot has
// the follower's mark is in the list or ahead of the scan.
type backlog struct {
	list []ring.Key // keys changed or deleted since, with the part of them that slots store

	scanning  bool
	wrapped   bool   // has been at the end of the table
	next, end uint64 // high halves of the keys at which the scan is, and will end

	longs []*longEntry // in the order in which they have changed
	// The counters of long algorithms that existed at the start are given between two records, which mark
	// the list as complete.
	beginLongs, endLongs bool

	last  kind // of the records given last
	wants Wants

	_ [128 - 82]byte // so that what every take looks at lies in one cache line
}

// kind is a kind of records for a follower. The kinds take turns, so that constant changes do not delay the
// rest.
type kind uint8

const (
	nothing kind = iota
	changed
	scanned
	long
	kinds
)

// Follow tracks changes of partition p for follower f, beginning with everything in it. If f follows
// already, it begins again.
func (s *Shard) Follow(p uint32, f Follower) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followLocked(f)
	x.stale &^= 1 << f // the scan removes them; if it ends early, something is left
	x.startOverLocked(f)
	x.startLongsOverLocked(f)
}

// FollowChanges tracks changes of partition p from now on for follower f, which has all that there is.
func (s *Shard) FollowChanges(p uint32, f Follower) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.followLocked(f)
	if x.stale&(1<<f) == 0 {
		return
	}
	x.stale &^= 1 << f
	for from := uint64(0); ; {
		to := s.visitLocked(x, from, func(e *slot) { e.share &^= 1 << f })
		if from = to + 1; from == 0 {
			break
		}
	}
	for _, e := range x.long {
		e.marks &^= 1 << f
	}
}

// followLocked begins the backlog of follower f.
func (p *partition) followLocked(f Follower) {
	p.unfollowLocked(f)
	p.follows[f] = &backlog{wants: Wants{Brief: f == ToSuccessor, Urgent: f == ToStandby}}
	p.noteFollowersLocked()
}

// Wants is what a follower is given apart from the rest.
type Wants struct {
	Brief  bool // counters that expire before a standby would need them, as it is about to be the owner: nodes are lent nothing meanwhile
	Urgent bool // at once, by OnUrgent, counters that many tokens were taken from
}

// SetWants changes what a follower of partition p wants. One that wants brief counters from now on has all of them after Brief: those
// from before have expired by then. Without that follower SetWants does nothing.
func (s *Shard) SetWants(p uint32, f Follower, w Wants) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.follows[f] != nil {
		x.follows[f].wants = w
		x.noteFollowersLocked()
	}
}

// noteFollowersLocked updates what decisions read of the followers.
func (p *partition) noteFollowersLocked() {
	p.followed, p.urgent = false, false
	for _, x := range p.follows {
		p.followed = p.followed || x != nil
		p.urgent = p.urgent || x != nil && x.wants.Urgent
	}
}

// movesLocked reports whether a follower is about to be the owner.
func (p *partition) movesLocked() bool {
	return slices.ContainsFunc(p.follows[:], func(x *backlog) bool { return x != nil && x.wants.Brief })
}

// Unfollow stops tracking changes of partition p for follower f.
func (s *Shard) Unfollow(p uint32, f Follower) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unfollowLocked(f)
	x.noteFollowersLocked()
}

// unfollowLocked ends the backlog of follower f, if it has one. Marks of what is in that stay.
func (p *partition) unfollowLocked(f Follower) {
	if x := p.follows[f]; x != nil && x.left() {
		p.stale |= 1 << f
	}
	p.follows[f] = nil
}

// IsFollowing reports whether f follows partition p.
func (s *Shard) IsFollowing(p uint32, f Follower) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.follows[f] != nil
}

// HasChanges reports whether partition p has something that follower f has not been given.
func (s *Shard) HasChanges(p uint32, f Follower) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.follows[f] != nil && x.follows[f].left()
}

// startOverLocked has follower f given every slot again, from the scan's place once round.
func (p *partition) startOverLocked(f Follower) {
	x := p.follows[f]
	x.list = x.list[:0]
	x.scanning, x.wrapped, x.end = true, false, x.next
}

// startLongsOverLocked has follower f given every counter of a long algorithm again.
func (p *partition) startLongsOverLocked(f Follower) {
	x := p.follows[f]
	x.longs, x.beginLongs, x.endLongs = make([]*longEntry, 0, len(p.long)), true, false
	for _, e := range p.long {
		e.marks |= 1 << f
		x.longs = append(x.longs, e)
	}
}

// has reports whether there are records of kind k that the follower has not been given.
func (x *backlog) has(k kind) bool {
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

// left reports whether there are records that the follower has not been given.
func (x *backlog) left() bool { return x.has(changed) || x.has(scanned) || x.has(long) }

// nextKind returns the kind of the records to give next.
func (x *backlog) nextKind() kind {
	for range kinds {
		if x.last = (x.last + 1) % kinds; x.has(x.last) {
			return x.last
		}
	}
	return nothing
}

// ahead reports whether a key with that high half lies ahead of the scan.
func (x *backlog) ahead(hi uint64) bool {
	switch {
	case !x.scanning:
		return false
	case x.wrapped:
		return x.next <= hi && hi < x.end
	default:
		return x.next <= hi || hi < x.end
	}
}

// listChangeLocked lists e for all followers; it has changed or is about to be deleted.
func (s *Shard) listChangeLocked(p *partition, e *slot) {
	if p.followed {
		s.listLocked(p, e, false)
	}
}

// listLocked lists e for all followers, or if it is brief for those that want such counters.
func (s *Shard) listLocked(p *partition, e *slot, brief bool) {
	for f := range Follower(followers) {
		x := p.follows[f]
		if x == nil || brief && !x.wants.Brief || e.share&(1<<f) != 0 || x.ahead(^e.hi) {
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
func (s *Shard) listLongLocked(p *partition, e *longEntry, brief bool) {
	for f := range Follower(followers) {
		x := p.follows[f]
		if x == nil || brief && !x.wants.Brief || e.marks&(1<<f) != 0 {
			continue
		}
		if len(x.longs) >= maxChanges+len(p.long) { // each existing one is in it at most once
			p.startLongsOverLocked(f)
			s.metrics.restarts.Inc()
			continue
		}
		x.longs = append(x.longs, e)
		e.marks |= 1 << f
	}
}

// notifyFollowersLocked lists the counter under key for the followers of p after t. Its slot is e, or nil
// if not known. It reports whether the standby should be given the change at once.
func (s *Shard) notifyFollowersLocked(p *partition, e *slot, key ring.Key, t *Take) (urgent bool) {
	brief := t.Brief()
	if t.Limit.Algorithm.Long() {
		s.listLongLocked(p, p.long[key], brief)
	} else {
		if e == nil {
			e = p.table.find(s.arena, key)
		}
		if e == nil { // it is dropped: give-backs of the same group have left it empty, or there was no memory for it
			gone := newSlot(key, algorithms.State{}, usage{})
			e = &gone
		}
		s.listLocked(p, e, brief)
	}
	return p.urgent && t.urgent()
}

// Brief reports whether a standby does not need the counter after t. A give-back is never brief: the
// standby may have a counter that matters although this one no longer does.
func (t *Take) Brief() bool {
	return t.Cost > 0 && t.Decision.ResetAt-t.Decision.At < int64(Brief)
}

// urgent reports whether t has brought its counter into a new part of its limit.
func (t *Take) urgent() bool {
	if t.Cost <= 0 || !t.Decision.Allowed || t.Brief() {
		return false
	}
	capacity := t.Limit.Room() // not 0: t was allowed
	used := capacity - t.Decision.Remaining
	return used*urgentShares/capacity != (used-t.Cost)*urgentShares/capacity
}

// OnUrgent sets f, which is called after a take for which followers that want it should be given the Changes of a
// partition at once: the take has brought a counter over a multiple of a twentieth of its limit. f is also
// called for partitions of the same group without a follower. It is called without locks, in the goroutine
// that decides, and must not block.
func (s *Shard) OnUrgent(f func(p uint32)) { s.urgent.Store(&f) }

func (s *Shard) urge(key ring.Key) {
	if f := s.urgent.Load(); f != nil {
		(*f)(key.Partition(uint32(len(s.partitions))))
	}
}
