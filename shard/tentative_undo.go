package shard

import (
	"slices"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
)

// Bounds of the memory for undoing tentative takes exactly.
const (
	undoFor      = 250 * time.Millisecond // after the take; enough for two exchanges between nodes
	maxSteps     = 1024                   // of one counter
	maxHistories = 64                     // of one partition
	maxAllSteps  = 1 << 20                // of 16 bytes, in all
)

// history is the takes of a bucket since the first tentative take that may still be undone. What has
// drained from a bucket does not belong to a single take: to undo one exactly, the others are taken again,
// from the state before it.
type history struct {
	limit  algorithms.Limit
	before algorithms.State
	steps  []step
	until  int64 // when the last tentative take cannot be undone any more
}

// step is a take that was counted.
type step struct{ at, cost int64 }

// noteLocked adds t, which has changed the counter under key, to the history if one is needed. before is
// the counter's state, found whether it existed. A copy has no history: the owner's state can replace it at
// any time. Nor has a counter with token leases: its bucket has held the leased tokens, and taking all
// again would not.
func (s *Shard) noteLocked(p *partition, key ring.Key, t *Take, before algorithms.State, found bool) {
	tentative := t.Tentative && t.Cost > 0
	if tentative {
		s.recordTentativeLocked(t)
	}
	if p.sealed || len(p.histories()) == 0 && !tentative || key != t.Key || !t.Limit.Algorithm.Drains() || p.accountLocked(key) != nil {
		return
	}
	h := p.histories()[key]
	if h != nil && (!found || h.limit != t.Limit || h.until < t.Decision.At || len(h.steps) == maxSteps || s.steps.Load() >= maxAllSteps) {
		s.forgetLocked(p, key)
		h = nil
	}
	if h == nil {
		if len(p.histories()) >= maxHistories {
			s.forgetHistoriesLocked(p, t.Decision.At)
		}
		if !tentative || len(p.histories()) >= maxHistories || s.steps.Load() >= maxAllSteps {
			return
		}
		m := p.ensureMemory()
		if m.histories == nil {
			m.histories = make(map[ring.Key]*history)
		}
		h = &history{limit: t.Limit, before: before}
		m.histories[key] = h
	}
	h.steps = append(h.steps, step{t.Decision.At, t.Cost})
	s.steps.Add(1)
	if tentative {
		h.until = t.Decision.At + int64(undoFor)
	}
}

// rewriteLocked returns the state of t's counter without t, if that is known. It is known only of a take:
// without it all others have the same room, which cannot be said of given-back tokens.
func (s *Shard) rewriteLocked(p *partition, t *Take) (algorithms.State, bool) {
	h := p.histories()[t.Key]
	if h == nil || h.limit != t.Limit || t.Cost <= 0 {
		return algorithms.State{}, false
	}
	i := slices.Index(h.steps, step{t.Decision.At, t.Cost})
	if i < 0 {
		return algorithms.State{}, false
	}
	h.steps = slices.Delete(h.steps, i, i+1)
	s.steps.Add(-1)
	state := h.before
	for _, x := range h.steps {
		state, _ = algorithms.Step(&h.limit, state, x.at, x.cost)
	}
	return state, true
}

func (s *Shard) forgetLocked(p *partition, key ring.Key) {
	if h := p.histories()[key]; h != nil {
		s.steps.Add(int64(-len(h.steps)))
		delete(p.memory.histories, key)
		p.tidyMemoryLocked()
	}
}

// forgetAllLocked deletes all histories of p.
func (s *Shard) forgetAllLocked(p *partition) {
	for key := range p.histories() {
		s.forgetLocked(p, key)
	}
	s.endLeasesLocked(p)
}

// forgetHistoriesLocked deletes expired histories.
func (s *Shard) forgetHistoriesLocked(p *partition, now int64) {
	for key, h := range p.histories() {
		if h.until < now {
			s.forgetLocked(p, key)
		}
	}
}
