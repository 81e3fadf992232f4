package ui

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxSeen bounds the changes of the cluster, and the begins and ends of problems, that are kept.
const maxSeen = 500

// State is what a node sees of another one.
type State struct {
	ID, Word, Tone string
	Incarnation    uint64
}

// seen are the changes of nodes that this node has seen since its start, and its own problems. It is safe for concurrent use.
type seen struct {
	mu     sync.Mutex
	nodes  map[string]State // guarded by mu; as seen last, nil before the first look
	events []Event          // guarded by mu; in the order in which they were noticed
	// problems of this node, by subject, which begin and end as events. At most maxProblems. Guarded by mu.
	problems map[string]*current
}

// add adds an event of what this node has seen, and drops the oldest one for which there is no room. The caller holds mu.
func (s *seen) add(e Event) {
	e.Outcome = "seen"
	if s.events = append(s.events, e); len(s.events) > maxSeen {
		s.events = slices.Clone(s.events[len(s.events)-maxSeen:])
	}
}

// look compares the nodes with those of the last look.
func (s *seen) look(now time.Time, states []State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]State)
	add := func(what, target, tone, reason string) {
		s.add(Event{At: now, Kind: what, Target: target, Tone: tone, Reason: reason})
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
}

func (s *seen) list() []Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}
