package shard

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of what is remembered so that a tentative take can be undone exactly.
const (
	undoFor      = 250 * time.Millisecond // how long after it; enough for two exchanges between nodes
	maxSteps     = 1024                   // of one counter
	maxHistories = 1024                   // of one partition
)

// history is what has become of a bucket since the first tentative take that may still
// be undone. What has drained from a bucket cannot be told apart by whose it was: to
// undo a take exactly, the others are taken again, from where it was before.
type history struct {
	limit  algorithms.Limit
	before algorithms.State
	steps  []step
	until  int64 // when the last tentative take cannot be undone any more
}

// step is a take that was counted.
type step struct{ at, cost int64 }

// noteLocked remembers t, which has changed its counter, if there is a reason to. before is
// what the counter was, found whether it was there.
func (p *partition) noteLocked(t *Take, before algorithms.State, found bool) {
	if len(p.histories) == 0 && !t.Tentative || !t.Limit.Algorithm.Drains() {
		return
	}
	h := p.histories[t.Key]
	if h != nil && (!found || h.limit != t.Limit || h.until < t.Decision.At || len(h.steps) == maxSteps) {
		delete(p.histories, t.Key)
		h = nil
	}
	if h == nil {
		if !t.Tentative || len(p.histories) == maxHistories {
			return
		}
		if p.histories == nil {
			p.histories = make(map[ring.Key]*history)
		}
		h = &history{limit: t.Limit, before: before}
		p.histories[t.Key] = h
	}
	h.steps = append(h.steps, step{t.Decision.At, t.Cost})
	if t.Tentative {
		h.until = t.Decision.At + int64(undoFor)
	}
}

// rewriteLocked returns what the counter of t would be without t, if that is known.
func (p *partition) rewriteLocked(t *Take) (algorithms.State, bool) {
	h := p.histories[t.Key]
	if h == nil || h.limit != t.Limit {
		return algorithms.State{}, false
	}
	i := slices.Index(h.steps, step{t.Decision.At, t.Cost})
	if i < 0 {
		return algorithms.State{}, false
	}
	h.steps = slices.Delete(h.steps, i, i+1)
	state := h.before
	for _, s := range h.steps { // with less in the bucket, each has room as it had
		state, _ = algorithms.Step(&h.limit, state, s.at, s.cost)
	}
	return state, true
}

// forgetHistoriesLocked drops those that are over.
func (p *partition) forgetHistoriesLocked(now int64) {
	for key, h := range p.histories {
		if h.until < now {
			delete(p.histories, key)
		}
	}
	if len(p.histories) == 0 {
		p.histories = nil
	}
}
