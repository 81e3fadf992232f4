package shard

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
)

// Bounds of token leases.
const (
	lendShare = 8 // at most a lendShare-th of what every limit has left is leased at once
	// Nodes have at most a nodeShare-th of a limit on lease: other callers should not be denied for tokens
	// that the lessees' callers do not use.
	nodeShare = 200
	// nodeLeaseTime is the longest token lease of a node, which settles or renews it long before.
	nodeLeaseTime = time.Second
	// A token lease is valid for a 1<<driftShift-th less than it could be, because the lessee's clock may
	// run slower than this one.
	driftShift = 10
	// MaxTokenLease is the most tokens leased at once.
	MaxTokenLease = 1_000_000
)

// TokenLease is tokens that are counted already, to be used without another check. The zero value is none.
type TokenLease struct {
	Tokens int64
	At     int64 // when they were counted, in Unix nanoseconds
	Until  int64 // the instant before which they may be used
}

// lend decides g, and then counts up to g.Lend more tokens and leases them.
func (s *Shard) lend(g *Group, now int64) {
	if !s.lendTogether(g, now) {
		return
	}
	for i := range g.Takes {
		s.urge(g.Takes[i].Key)
	}
}

// lendTogether reports whether the standby should be given the changes at once.
func (s *Shard) lendTogether(g *Group, now int64) (urgent bool) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.redirectLocked(g, locked) {
		return false
	}
	now = s.nextLeaseLocked(g, locked, now)
	if g.Unused.At > 0 && len(g.Takes) == 1 {
		key := g.Takes[0].Key
		s.restLocked(s.partition(key), key, g.Unused.At, g.Unused.Tokens, now)
	}
	urgent = s.countLocked(g, now)
	if tokens, until := s.lendableLocked(g, now); tokens > 0 {
		urgent = s.lendMoreLocked(g, tokens, until, now) || urgent
	}
	s.showLocked(g)
	return urgent
}

// nextLeaseLocked returns now, or the next instant at which no lease of g's counters began: the instant
// identifies a lease.
func (s *Shard) nextLeaseLocked(g *Group, locked []*partition, now int64) int64 {
	for i := range g.Takes {
		if a := s.partition(g.Takes[i].Key).accountLocked(g.Takes[i].Key); a != nil && len(a.leases) > 0 {
			now = max(now, a.leases[len(a.leases)-1].at+1)
		}
	}
	for _, p := range locked {
		p.latest = now
	}
	return now
}

// lendMoreLocked counts and leases that many tokens of g, which is decided. What is left of the lessee's
// last lease becomes part of the new one, if both are of one window.
func (s *Shard) lendMoreLocked(g *Group, tokens, until, now int64) (urgent bool) {
	more := Group{Takes: slices.Clone(g.Takes)}
	for i := range more.Takes {
		more.Takes[i].Cost = more.Takes[i].Cost / g.Tokens * tokens
	}
	urgent = s.countLocked(&more, now)
	if !more.Allowed {
		return urgent
	}
	for i := range g.Takes {
		t := &more.Takes[i]
		o := trackedLease{at: now, until: until, ends: algorithms.LentUntil(&t.Limit, &t.Decision), left: t.Cost, node: g.ForNode}
		if t.Limit.Algorithm.Drains() {
			o.ends = 0
		}
		if i == 0 {
			o.unit = t.Cost / tokens
		}
		s.lendLocked(s.partition(t.Key), t, o, g.Unused.At)
		g.Takes[i].Decision = t.Decision
	}
	g.TokenLease = TokenLease{Tokens: tokens, At: now, Until: until}
	s.metrics.lent.Add(float64(tokens))
	return urgent
}

// lendableLocked returns how many tokens g, once counted, may lease, and until when. A group without a
// shadow's room leases none: the lessee would not see the shadow's denials.
func (s *Shard) lendableLocked(g *Group, now int64) (tokens, until int64) {
	if !g.Allowed || len(g.Takes) == 0 || g.Tokens <= 0 {
		return 0, 0
	}
	tokens, until = min(g.Lend, MaxTokenLease), algorithms.Never
	if g.ForNode {
		until = now + int64(nodeLeaseTime)
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		p := s.partition(t.Key)
		if t.Shadow || t.Cost <= 0 || t.Cost%g.Tokens != 0 || t.Decision.At != now || !s.canLendLocked(p, t, now) {
			return 0, 0
		}
		if g.ForNode && p.movesLocked() { // the next owner would not know of the lease
			return 0, 0
		}
		room := t.Decision.Remaining / lendShare
		if nodes, _ := p.accountLocked(t.Key).out(); g.ForNode {
			room = min(room, t.Limit.Capacity()/nodeShare-nodes)
		}
		tokens = min(tokens, room/(t.Cost/g.Tokens))
		until = min(until, algorithms.LentUntil(&t.Limit, &t.Decision))
	}
	until -= (until - now) >> driftShift
	if until <= now {
		return 0, 0
	}
	return max(0, tokens), until
}

// giveBack gives back the tokens left of the lease of g.LentAt, and sets the decisions of a peek after
// that. Tokens not given back count as used.
func (s *Shard) giveBack(g *Group, now int64) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.redirectLocked(g, locked) {
		return
	}
	for i := range g.Takes {
		t := g.Takes[i]
		t.Cost, t.Decision.At = max(0, -t.Cost), g.LentAt
		p := s.partition(t.Key)
		if !s.settleLocked(p, &t, g.LentAt, t.Cost, now) && !t.Limit.Algorithm.Drains() {
			s.returnLocked(p, &t, now) // of a window, which knows what is still counted
		}
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		t.Decision, t.Source = s.lookLocked(s.partition(t.Key), t, now), Owner
	}
	g.Allowed = true
	s.showLocked(g)
}

// showLocked counts tokens leased to other nodes and not known to be used as remaining in the answers to g:
// callers of those nodes can still take them. Tokens leased to clients count as taken.
func (s *Shard) showLocked(g *Group) {
	for i := range g.Takes {
		s.partition(g.Takes[i].Key).showTakeLocked(&g.Takes[i])
	}
}

func (p *partition) showTakeLocked(t *Take) {
	if p.memory == nil || !t.Decision.Allowed {
		return
	}
	if nodes, _ := p.accountLocked(t.Key).out(); nodes > 0 {
		t.Decision.Remaining = min(t.Limit.Room(), t.Decision.Remaining+nodes)
	}
}
