package ui

import (
	"strings"
	"time"
)

// When a problem is an event, in looks at the problems of the node: one that comes and goes again and again is a single one.
const (
	beginsAfter = 2 // looks at which it is there, one after the other
	endsAfter   = 3 // looks at which it is not there
)

// Bounds of the problems that a node looks at.
const (
	maxProblems    = 64
	maxProblemText = 400 // bytes of its subject, and of its text
)

// Problem is something that an operator of the node should look at.
type Problem struct {
	// Subject says what it is about, in a few words. It stays the same as long as the problem does.
	Subject string
	// Text is one sentence, whose numbers may change.
	Text string
}

// current is a problem that was there at one of the last looks.
type current struct {
	since   time.Time // the first look at which it was there
	until   time.Time // the first look at which it was not there any more, if missing > 0
	looks   int       // at which it was there
	missing int       // looks since it was there last
}

// lookAtProblems notes which problems of the node itself have begun, and which have ended.
func (s *seen) lookAtProblems(now time.Time, problems []Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problems == nil {
		s.problems = make(map[string]*current)
	}
	there := make(map[string]bool)
	for _, p := range problems {
		subject := clipped(p.Subject)
		c := s.problems[subject]
		if there[subject] || c == nil && len(s.problems) == maxProblems {
			continue
		}
		there[subject] = true
		if c == nil {
			c = &current{since: now}
			s.problems[subject] = c
		}
		c.missing = 0
		if c.looks++; c.looks == beginsAfter {
			s.add(Event{At: c.since, Kind: "Problem began", Target: subject, Tone: "bad", Reason: clipped(p.Text)})
		}
	}
	for subject, c := range s.problems {
		if there[subject] {
			continue
		}
		if c.missing++; c.missing == 1 {
			c.until = now
		}
		if c.looks < beginsAfter || c.missing == endsAfter {
			delete(s.problems, subject)
		}
		if c.missing == endsAfter {
			s.add(Event{At: c.until, Kind: "Problem ended", Target: subject, Tone: "good", Reason: "it lasted " + formatSpan(c.until.Sub(c.since))})
		}
	}
}

// clipped returns a text of at most maxProblemText bytes.
func clipped(text string) string {
	if len(text) > maxProblemText {
		text = text[:maxProblemText-3] + "..."
	}
	return strings.ToValidUTF8(text, "")
}
