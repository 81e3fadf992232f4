package shard

import (
	"math"
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// A partition that this node does not own is sealed: takes of it are Redirected and count nothing, and its
// counters are a copy of the owner's. All partitions of a new Shard are unsealed.
//
// A decision holds the partition's lock and has checked sealed under it, so that no decision is made once
// Seal has returned.

// Unseal lets partition p decide. Its provisional grants become part of its counters.
func (s *Shard) Unseal(p uint32) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sealed, x.withheld = false, false
	s.absorbLocked(x)
}

// Seal stops decisions in partition p: none is made once it has returned.
func (s *Shard) Seal(p uint32) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.sealed = true
	x.clockLocked(s.now())
	s.forgetAllLocked(x) // other nodes may change the counters from now on
}

// IsSealed reports whether partition p is sealed. The decision lease does not matter.
func (s *Shard) IsSealed(p uint32) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sealed
}

// Withhold stops provisional decisions in partition p, or allows them again: those from a copy, and those without the decision lease. None is made
// once Withhold(p, true) has returned. Unseal allows them.
func (s *Shard) Withhold(p uint32, withheld bool) {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	x.withheld = withheld
}

// IsDeciding reports whether partition p decides now: it is unsealed and the decision lease is valid.
func (s *Shard) IsDeciding(p uint32) bool { return !s.IsSealed(p) && s.now() < s.leaseUntil.Load() }

// SetDecisionLease sets the end of the decision lease, by the monotonic clock: from then on all partitions
// behave as if they were sealed. The zero Time, as in a new Shard, means no end.
func (s *Shard) SetDecisionLease(until time.Time) {
	at := int64(math.MaxInt64)
	if d := int64(until.Sub(s.started)); !until.IsZero() && d < math.MaxInt64-s.wallStart {
		at = s.wallStart + d
	}
	s.leaseUntil.Store(at)
	if s.grantBytes.Load() == 0 || s.now() >= at {
		return
	}
	for i := range s.partitions { // their grants made without the decision lease become part of the counters
		x := &s.partitions[i]
		x.mu.Lock()
		if !x.sealed {
			s.absorbLocked(x)
		}
		x.mu.Unlock()
	}
}

// needsDecisionLease reports whether only a node with a valid decision lease may decide g.
func (g *Group) needsDecisionLease() bool {
	return !g.Ungated && (!g.Provisional || g.Reset || g.LentAt > 0)
}

// redirect sets the Source of all takes of g to Redirected.
func (g *Group) redirect() {
	for i := range g.Takes {
		g.Takes[i].Decision, g.Takes[i].Source = algorithms.Decision{}, Redirected
	}
	g.Allowed = len(g.Takes) == 0
}

// redirectLocked redirects g, which touches the locked partitions, if one of them is sealed. It reports
// whether one is.
func (s *Shard) redirectLocked(g *Group, locked []*partition) bool {
	if g.Ungated || !slices.ContainsFunc(locked, func(p *partition) bool { return p.sealed }) {
		return false
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		t.Decision, t.Source = algorithms.Decision{}, Undecided
		if s.partition(t.Key).sealed {
			t.Source = Redirected
		}
	}
	g.Allowed = false
	return true
}
