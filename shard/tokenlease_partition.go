package shard

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the memory of token leases.
const (
	maxAccountLeases = 1024    // of one counter; beyond it no more are given
	maxAccounts      = 256     // counters of one partition that have leases; likewise
	maxAllLeases     = 1 << 18 // of 40 bytes, in all; likewise
	// settleFor is how long after its end a lease is remembered, so that tokens that come back late are not
	// given back twice.
	settleFor = 250 * time.Millisecond
)

// accountLocked returns the account of the counter under key, nil if there is none.
func (p *partition) accountLocked(key ring.Key) *account {
	if p.memory == nil {
		return nil
	}
	return p.memory.leaseAccounts[key]
}

// advanceLeasesLocked records that a state as of now was stored, in which hold is included.
func (s *Shard) advanceLeasesLocked(p *partition, key ring.Key, now int64) {
	a := p.accountLocked(key)
	if a == nil {
		return
	}
	for i := range a.leases {
		o := &a.leases[i]
		o.over = o.over || o.until <= now
	}
	gone := func(o trackedLease) bool { return o.over && o.until+int64(settleFor) <= now }
	for i := range a.leases {
		if o := &a.leases[i]; gone(*o) {
			s.usedLocked(o, o.left)
		}
	}
	before := len(a.leases)
	a.leases = slices.DeleteFunc(a.leases, gone)
	s.openLeases.Add(int64(len(a.leases) - before))
	if len(a.leases) == 0 {
		s.dropAccountLocked(p, key)
	}
}

// usedLocked counts tokens of a lease as used.
func (s *Shard) usedLocked(o *trackedLease, tokens int64) {
	if o.unit > 0 {
		s.metrics.used.Add(float64(tokens / o.unit))
	}
}

// dropAccountLocked deletes the account of key: its leased tokens are not taken back.
func (s *Shard) dropAccountLocked(p *partition, key ring.Key) {
	a := p.accountLocked(key)
	if a == nil {
		return
	}
	for i := range a.leases {
		s.usedLocked(&a.leases[i], a.leases[i].left)
	}
	s.openLeases.Add(int64(-len(a.leases)))
	delete(p.memory.leaseAccounts, key)
	p.tidyMemoryLocked()
}

// keepHeldLocked stores the state of the counter under key as of now.
func (s *Shard) keepHeldLocked(p *partition, key ring.Key, a *account, now int64) {
	if a.limit.Algorithm.Drains() {
		s.replaceLocked(p, key, &a.limit, now, func(state algorithms.State) algorithms.State { return state })
	}
	s.advanceLeasesLocked(p, key, now)
}

// replaceLocked replaces the counter under key by f of it, as of now. Its algorithm is not long.
func (s *Shard) replaceLocked(p *partition, key ring.Key, l *algorithms.Limit, now int64, f func(algorithms.State) algorithms.State) {
	t := Take{Key: key, Limit: *l}
	e := p.table.find(s.arena, key)
	before := s.stateLocked(p, e, &t)
	state := algorithms.StepInto(&t.Decision, l, f(before), now, 0)
	if e == nil && t.Decision.ResetAt <= t.Decision.At {
		return
	}
	s.putLocked(p, e, key, &t, state)
	if e = p.table.find(s.arena, key); e != nil {
		s.listChangeLocked(p, e)
	}
}

// lendLocked records a lease of the counter of t. The tokens left of the lease of rest, if there is one,
// become part of it if both are of one window.
func (s *Shard) lendLocked(p *partition, t *Take, o trackedLease, rest int64) {
	m := p.ensureMemory()
	a := m.leaseAccounts[t.Key]
	if a == nil {
		if m.leaseAccounts == nil {
			m.leaseAccounts = make(map[ring.Key]*account)
		}
		a = &account{}
		m.leaseAccounts[t.Key] = a
	}
	if i, found := a.find(rest); found && a.leases[i].until > o.at && a.leases[i].ends == o.ends {
		o.left += a.leases[i].left
		a.leases = slices.Delete(a.leases, i, i+1)
		s.openLeases.Add(-1)
	}
	a.limit = t.Limit
	a.leases = append(a.leases, o)
	s.openLeases.Add(1)
}

// HasNodeLeases reports whether nodes may still use tokens that were leased to them of counters of partition p.
func (s *Shard) HasNodeLeases(p uint32) bool {
	x := &s.partitions[p]
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.memory == nil {
		return false
	}
	now := s.now()
	for _, a := range x.memory.leaseAccounts {
		if slices.ContainsFunc(a.leases, func(o trackedLease) bool { return o.node && o.left > 0 && o.until > now }) {
			return true
		}
	}
	return false
}

// canLendLocked reports whether one more lease of the counter of t can be recorded. The counter must not be
// a shared one.
func (s *Shard) canLendLocked(p *partition, t *Take, now int64) bool {
	if t.Limit.Algorithm.Long() && p.long[t.Key] == nil || !t.Limit.Algorithm.Long() && p.table.find(s.arena, t.Key) == nil {
		return false
	}
	if h := p.histories()[t.Key]; h != nil {
		if h.until >= now { // a take that it undoes could be the one that decides until when the lease is valid
			return false
		}
		s.forgetLocked(p, t.Key)
	}
	a := p.accountLocked(t.Key)
	switch {
	case s.openLeases.Load() >= maxAllLeases:
		return false
	case a != nil:
		return len(a.leases) < maxAccountLeases
	}
	if p.memory != nil && len(p.memory.leaseAccounts) >= maxAccounts {
		s.sweepLeasesLocked(p, now)
	}
	return p.memory == nil || len(p.memory.leaseAccounts) < maxAccounts
}

// restLocked records that left tokens are left of the lease of at, and returns it, nil if it is not known.
// The pointer is valid until the account's leases change.
func (s *Shard) restLocked(p *partition, key ring.Key, at, left, now int64) *trackedLease {
	a := p.accountLocked(key)
	if a == nil {
		return nil
	}
	s.keepHeldLocked(p, key, a, now)
	i, found := a.find(at)
	if !found {
		return nil
	}
	o := &a.leases[i]
	left = min(left, o.left)
	s.usedLocked(o, o.left-left)
	o.left = left
	return o
}

// settleLocked ends the lease of at: back tokens of it come back, and the others were used. It reports
// whether the lease was known.
func (s *Shard) settleLocked(p *partition, t *Take, at, back, now int64) bool {
	o := s.restLocked(p, t.Key, at, back, now)
	if o == nil {
		return false
	}
	a, ended := p.accountLocked(t.Key), *o
	ended.left, back = 0, o.left
	if ended.unit > 0 {
		s.metrics.returned.Add(float64(back / ended.unit))
	}
	i, _ := a.find(at)
	a.leases = slices.Delete(a.leases, i, i+1)
	s.openLeases.Add(-1)
	switch {
	case back == 0:
	case t.Limit.Algorithm.Long():
		s.returnLongLocked(p, &Take{Key: t.Key, Limit: t.Limit, Cost: back, Decision: algorithms.Decision{At: at}}, now)
	case t.Limit.Algorithm.Drains():
		at = min(now, ended.until) // until then it has not drained
		fallthrough
	default:
		s.replaceLocked(p, t.Key, &t.Limit, now, func(state algorithms.State) algorithms.State {
			return algorithms.Return(&t.Limit, state, now, at, back)
		})
	}
	if len(a.leases) == 0 {
		s.dropAccountLocked(p, t.Key)
	}
	return true
}

// sweepLeasesLocked deletes expired leases of p.
func (s *Shard) sweepLeasesLocked(p *partition, now int64) {
	if p.memory == nil {
		return
	}
	for key, a := range p.memory.leaseAccounts {
		if slices.ContainsFunc(a.leases, func(o trackedLease) bool { return o.until <= now }) {
			s.keepHeldLocked(p, key, a, now)
		}
	}
}

// endLeasesLocked deletes all leases of p. Tokens that may still be used stay counted in the buckets for as
// long, but at most for nodeLeaseTime: denying other callers for clients with longer leases is not worth
// it.
func (s *Shard) endLeasesLocked(p *partition) {
	if p.memory == nil {
		return
	}
	for key, a := range p.memory.leaseAccounts {
		if a.limit.Algorithm.Drains() {
			s.replaceLocked(p, key, &a.limit, p.latest, func(state algorithms.State) algorithms.State {
				return a.outlast(state, p.latest)
			})
		}
		s.dropAccountLocked(p, key)
	}
}
