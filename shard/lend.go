package shard

import (
	"slices"

	"github.com/weirlimit/weir/algorithms"
)

// Bounds of loans.
const (
	lendShare = 8 // at most a lendShare-th of what every limit has left is lent at once
	// A loan is valid for a 1<<driftShift-th less than it could be, as the borrower's
	// clock may run slower than this one.
	driftShift = 10
	// MaxLoan is the most tokens that are lent at once.
	MaxLoan = 1_000_000
)

// Loan is tokens that are counted already, to be used without asking again. The zero
// value is none.
type Loan struct {
	Tokens int64
	At     int64 // when they were counted, in Unix nanoseconds
	Until  int64 // the instant before which they may be used
}

// lend decides g, and then counts more tokens, up to g.Lend, and lends them. Others may
// come in between: they leave less, and make no loan valid for longer.
func (s *Shard) lend(g *Group) {
	own := []Group{*g}
	own[0].Lend = 0
	s.Decide(own)
	g.Allowed = own[0].Allowed
	tokens, until := g.lendable()
	if tokens <= 0 || slices.ContainsFunc(g.Takes, s.unsettled) {
		return
	}
	more := []Group{{Takes: slices.Clone(g.Takes)}}
	takes := more[0].Takes
	for i := range takes {
		takes[i].Cost = takes[i].Cost / g.Tokens * tokens
	}
	s.Decide(more)
	if !more[0].Allowed {
		return
	}
	at := takes[0].Decision.At
	until -= (until - at) >> driftShift
	if until <= at || slices.ContainsFunc(takes, func(t Take) bool { return t.Decision.At != at }) {
		s.Return(Left(takes))
		return
	}
	for i := range takes {
		g.Takes[i].Decision = takes[i].Decision
	}
	g.Loan = Loan{Tokens: tokens, At: at, Until: until}
	s.metrics.lent.Add(float64(tokens))
}

// lendable returns how many tokens g, once decided, may be lent, and until when. What
// goes on without a shadow's room would not be told so: it is lent nothing.
func (g *Group) lendable() (tokens, until int64) {
	if !g.Allowed || len(g.Takes) == 0 || g.Tokens <= 0 {
		return 0, 0
	}
	tokens, until = min(g.Lend, MaxLoan), algorithms.Never
	for i := range g.Takes {
		t := &g.Takes[i]
		if t.Shadow || t.Cost <= 0 || t.Cost%g.Tokens != 0 {
			return 0, 0
		}
		tokens = min(tokens, t.Decision.Remaining/lendShare/(t.Cost/g.Tokens))
		until = min(until, algorithms.LentUntil(&t.Limit, &t.Decision))
		if until <= t.Decision.At {
			return 0, 0
		}
	}
	return tokens, until
}

// unsettled reports whether something that is in t's bucket may be undone yet. A loan
// that is valid because of it would outlive it.
func (s *Shard) unsettled(t Take) bool {
	p := s.partition(t.Key)
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.histories[t.Key]
	return h != nil && h.until >= t.Decision.At
}

// giveBack gives back what is left of the loan of g.LentAt, and looks at what there is
// then.
func (s *Shard) giveBack(g *Group, now int64) {
	var few [8]*partition
	locked, now := s.lock(g, now, few[:0])
	defer unlock(locked)
	if s.movedLocked(g, locked) {
		return
	}
	for _, t := range Left(g.Takes) {
		t.Cost, t.Decision.At = max(0, -t.Cost), g.LentAt
		s.returnLocked(s.partition(t.Key), &t, now)
	}
	for i := range g.Takes {
		t := &g.Takes[i]
		t.Decision, t.Source = s.lookLocked(s.partition(t.Key), t, now), Owner
	}
	g.Allowed = true
}

// Left returns which of the takes of a loan are to be given to Return: all but those
// from buckets. A loan from a bucket may be valid only because the bucket was not empty
// (see algorithms.LentUntil), that is because of tokens that are given back; and they
// will have drained soon.
func Left(takes []Take) []Take {
	return slices.DeleteFunc(slices.Clone(takes), func(t Take) bool { return t.Limit.Algorithm.Drains() })
}
