package shard

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// A partition that is not this node's to decide about is closed: what asks it is told that
// it has Moved, and counts nothing. What such a partition holds is a copy of what
// somebody else counts. All partitions of a new Shard are open.
//
// Whoever decides holds the partition's lock and has seen under it that the gate is open: once
// Close returns, nobody does any more.

// Open lets partition p decide. Grants that were kept apart in it are not apart any more: what it
// holds counts from now on.
func (s *Shard) Open(p uint32) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed, x.withheld = false, false
	s.absorbLocked(x)
}

// Close stops partition p deciding. When it returns, nobody decides in it any more.
func (s *Shard) Close(p uint32) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	s.forgetAllLocked(x) // as others may change the counters from now on
}

// IsOpen reports whether partition p decides, authority aside.
func (s *Shard) IsOpen(p uint32) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.closed
}

// Withhold stops partition p deciding provisionally, or lets it again. When it returns, nobody does any more.
func (s *Shard) Withhold(p uint32, withheld bool) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withheld = withheld
}

// Decides reports whether partition p decides now: it is open, and this node has authority.
func (s *Shard) Decides(p uint32) bool { return s.IsOpen(p) && s.now() < s.authority.Load() }

// SetAuthority says until when this node may decide, by its monotonic clock: from that instant
// on, all partitions are as if they were closed. The zero Time, as in a new Shard, is no
// bound.
func (s *Shard) SetAuthority(until time.Time) {
	at := int64(math.MaxInt64)
	if d := int64(until.Sub(s.started)); !until.IsZero() && d < math.MaxInt64-s.epoch {
		at = s.epoch + d
	}
	s.authority.Store(at)
	if s.grantBytes.Load() == 0 || s.now() >= at {
		return
	}
	for i := range s.partitions { // what they have granted without authority counts from now on
		x := &s.partitions[i]
		x.mu.Lock()
		if !x.closed {
			s.absorbLocked(x)
		}
		x.mu.Unlock()
	}
}

// needsAuthority reports whether g is decided only by who holds what it asks.
func (g *Group) needsAuthority() bool {
	return !g.Ungated && (!g.Provisional || g.Reset || g.LentAt > 0)
}

// moved answers that nobody here decides about any of g's takes.
func (g *Group) moved() {
	for i := range g.Takes {
		g.Takes[i].Decision, g.Takes[i].Source = algorithms.Decision{}, Moved
	}
	g.Allowed = len(g.Takes) == 0
}

// movedLocked answers g, which touches the locked partitions, if one of them is closed. It
// reports whether that is so.
func (s *Shard) movedLocked(g *Group, locked []*partition) bool {
	if g.Ungated || !slices.ContainsFunc(locked, func(p *partition) bool { return p.closed }) {
		return false
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		t.Decision, t.Source = algorithms.Decision{}, Unanswered
		if s.partition(t.Key).closed {
			t.Source = Moved
		}
	}
	g.Allowed = false
	return true
}

// Heat says how much was decided in partition p lately: the number of groups, half of
// which each round of the sweeper forgets.
func (s *Shard) Heat(p uint32) uint64 {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return uint64(x.heat)
}

// Count returns how many counters partition p has, as Len counts them.
func (s *Shard) Count(p uint32) int {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.table.n + len(x.long)
}
