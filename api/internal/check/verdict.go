package check

import (
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules"
	"github.com/weirlimit/weir/shard"
)

// Verdict is the answer to one item.
type Verdict struct {
	Allowed bool
	Source  Source
	// By is the index in the item of the take that decided, -1 if there is none.
	By int
}

// Source says who decided an item; its numbers index the metrics.
type Source int

// The sources of a verdict.
const (
	ByOwner Source = iota
	ByNoRule
	ByFailOpen
	ByUnlimited
	ByLocal
	ByFailClosed
	ByOverload
	ByLent
	ByRelay
	ByProvisional
	sources // how many there are
)

// SourceOf returns the source of the answer to a take.
func SourceOf(t *shard.Take) Source {
	switch {
	case t.Source == shard.Owner:
		return ByOwner
	case t.Source == shard.Local:
		return ByLocal
	case t.Source == shard.Lent:
		return ByLent
	case t.Source == shard.Relayed:
		return ByRelay
	case t.Source == shard.Provisional:
		return ByProvisional
	case t.Source == shard.Overloaded && !t.Shadow:
		return ByOverload
	case t.OnFailure == shard.FailClosed:
		return ByFailClosed
	}
	return ByFailOpen
}

// Judge finds the take that decided the i-th item.
func (w *Work) Judge(i int) Verdict {
	_, takes := w.Item(i)
	if w.Items[i].Exempt != nil {
		return Verdict{Allowed: true, Source: ByUnlimited, By: -1}
	}
	return judge(takes)
}

func judge(takes []shard.Take) Verdict {
	if len(takes) == 0 {
		return Verdict{Allowed: true, Source: ByNoRule, By: -1}
	}
	v := Verdict{Allowed: true}
	for i := range takes {
		if denies(&takes[i]) {
			v.Allowed = false
		}
		if decidesBefore(&takes[i], &takes[v.By]) {
			v.By = i
		}
	}
	v.Source = SourceOf(&takes[v.By])
	return v
}

// denies reports whether t alone denies its item.
func denies(t *shard.Take) bool {
	return !t.Shadow && !t.Decision.Allowed && SourceOf(t) != ByFailOpen
}

// decidesBefore reports whether a rather than b decides an item that both belong to: a denial, then an
// undecided item, then an enforced one, and of equals the tighter.
func decidesBefore(a, b *shard.Take) bool {
	switch x, y := denies(a), denies(b); {
	case x != y:
		return x
	case Answered(a) != Answered(b):
		// A denial decided by a node has a time to retry.
		return Answered(a) == x
	case !Answered(a):
		return false
	case a.Shadow != b.Shadow:
		return b.Shadow
	}
	return tighter(a, b)
}

// tighter reports whether of two answers a leaves less: a denial before what had
// room, then the one that frees later, or the one with less left.
func tighter(a, b *shard.Take) bool {
	x, y := &a.Decision, &b.Decision
	switch {
	case x.Allowed != y.Allowed:
		return !x.Allowed
	case !x.Allowed && x.RetryAt != y.RetryAt:
		return x.RetryAt > y.RetryAt
	case x.Remaining != y.Remaining:
		return x.Remaining < y.Remaining
	default:
		return x.ResetAt > y.ResetAt
	}
}

// Answered reports whether a node has looked at the counter.
func Answered(t *shard.Take) bool {
	switch t.Source {
	case shard.Owner, shard.Local, shard.Lent, shard.Relayed, shard.Provisional:
		return true
	case shard.Undecided, shard.Overloaded, shard.Redirected, shard.Deferred:
	}
	return false
}

// Remaining is what is left of the limit itself, without what a soft or elastic mode allows above it.
func Remaining(m *rules.Match, d *algorithms.Decision) uint32 {
	return uint32(max(0, d.Remaining-Above(m)))
}

// Above is how much more Remaining is because a soft or elastic mode lets more through.
func Above(m *rules.Match) int64 {
	nominal := &m.Rule.Limits[m.Limit]
	if m.Above == 0 || !nominal.Algorithm.Queues() {
		return m.Above
	}
	raised := m.Held()
	return raised.Room() - nominal.Room()
}

// CeilSeconds rounds nanoseconds up to seconds.
func CeilSeconds(ns int64) int64 {
	s := ns / int64(time.Second)
	if ns%int64(time.Second) > 0 {
		s++
	}
	return s
}
