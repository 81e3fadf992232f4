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
	maxHistories = 64                     // of one partition
	maxAllSteps  = 1 << 20                // of 16 bytes, in all
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

// noteLocked remembers t, which has changed the counter under key, if there is a reason to. before
// is what the counter was, found whether it was there. Of a copy nothing is remembered: what
// others have counted takes its place at any time.
func (s *Shard) noteLocked(p *partition, key ring.Key, t *Take, before algorithms.State, found bool) {
	tentative := t.Tentative && t.Cost > 0
	if p.closed || len(p.histories) == 0 && !tentative || key != t.Key || !t.Limit.Algorithm.Drains() {
		return
	}
	h := p.histories[key]
	if h != nil && (!found || h.limit != t.Limit || h.until < t.Decision.At || len(h.steps) == maxSteps || s.steps.Load() >= maxAllSteps) {
		s.forgetLocked(p, key)
		h = nil
	}
	if h == nil {
		if len(p.histories) >= maxHistories {
			s.forgetHistoriesLocked(p, t.Decision.At)
		}
		if !tentative || len(p.histories) >= maxHistories || s.steps.Load() >= maxAllSteps {
			return
		}
		if p.histories == nil {
			p.histories = make(map[ring.Key]*history)
		}
		h = &history{limit: t.Limit, before: before}
		p.histories[key] = h
	}
	h.steps = append(h.steps, step{t.Decision.At, t.Cost})
	s.steps.Add(1)
	if tentative {
		h.until = t.Decision.At + int64(undoFor)
	}
}

// rewriteLocked returns what the counter of t would be without t, if that is known. It is so
// of a take only: without it all others have room as they had, which cannot be said of
// tokens that were given back.
func (s *Shard) rewriteLocked(p *partition, t *Take) (algorithms.State, bool) {
	h := p.histories[t.Key]
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
	if h := p.histories[key]; h != nil {
		s.steps.Add(int64(-len(h.steps)))
		delete(p.histories, key)
	}
}

// forgetAllLocked drops all that is remembered in p.
func (s *Shard) forgetAllLocked(p *partition) {
	for key := range p.histories {
		s.forgetLocked(p, key)
	}
	p.histories = nil
}

// forgetHistoriesLocked drops those that are over.
func (s *Shard) forgetHistoriesLocked(p *partition, now int64) {
	for key, h := range p.histories {
		if h.until < now {
			s.forgetLocked(p, key)
		}
	}
	if len(p.histories) == 0 {
		p.histories = nil
	}
}
