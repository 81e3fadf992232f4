package ui

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxSeen bounds the changes of the cluster that are kept.
const maxSeen = 500

// State is what a node sees of another one.
type State struct {
	ID, Word, Tone string
	Incarnation    uint64
}

// seen are the changes of nodes that this node has seen since its start. It is safe for concurrent use.
type seen struct {
	mu     sync.Mutex
	nodes  map[string]State // guarded by mu; as seen last, nil before the first look
	events []Event          // guarded by mu; the oldest first
}

// look compares the nodes with those of the last look.
func (s *seen) look(now time.Time, states []State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]State)
	add := func(what, target, tone, reason string) {
		s.events = append(s.events, Event{At: now, What: what, Target: target, Tone: tone, Reason: reason, Outcome: "seen"})
	}
	for _, n := range states {
		next[n.ID] = n
		before, known := s.nodes[n.ID]
		switch {
		case s.nodes == nil:
		case !known:
			add("Node "+n.Word, n.ID, n.Tone, fmt.Sprintf("start %d", n.Incarnation))
		case before.Incarnation != n.Incarnation:
			add("Node restarted", n.ID, n.Tone, fmt.Sprintf("start %d, now %s", n.Incarnation, n.Word))
		case before.Word != n.Word:
			add("Node "+n.Word, n.ID, n.Tone, "it was "+before.Word)
		}
	}
	for id, before := range s.nodes {
		if _, there := next[id]; !there {
			add("Node gone", id, "busy", "it was "+before.Word)
		}
	}
	s.nodes = next
	if more := len(s.events) - maxSeen; more > 0 {
		s.events = slices.Clone(s.events[more:])
	}
}

func (s *seen) list() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}
