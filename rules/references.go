package rules

import (
	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// reference is where a rule names another one of its domain.
type reference struct {
	from         *Rule
	id           string
	to           *Rule // set by link
	parent       bool  // as Mode.Parent, not in Replaces
	field        string
	line, column int
}

// refer notes a reference, to be followed when all rules are read.
func (d *decoder) refer(n *yaml.Node, at problem.Path, from *Rule, id string, parent bool) {
	d.references = append(d.references, reference{from: from, id: id, parent: parent, field: at.Field, line: n.Line, column: n.Column})
}

// link follows all references.
func (l *loader) link() {
	replaces, parents := newGraph(), newGraph()
	for _, ref := range l.references {
		if ref.from.Domain == "" || ref.from.ID == "" {
			continue // reported as such
		}
		ref.to = l.byName[ruleName{ref.from.Domain, ref.id}]
		switch reason := ref.refused(); {
		case reason != "":
			l.refuse(ref, reason)
		case ref.parent:
			ref.from.parent = ref.to
			parents.add(ref)
		default:
			ref.from.replacedRules = append(ref.from.replacedRules, ref.to)
			replaces.add(ref)
		}
	}
	closes := func(ref reference) { l.refuse(ref, "leads back to this rule") }
	replaces.circles(closes)
	parents.circles(closes)
}

// refused says why ref is not allowed, or nothing.
func (ref reference) refused() string {
	switch {
	case ref.to == nil:
		return "is not a rule of domain " + problem.Quote(ref.from.Domain)
	case ref.to == ref.from:
		return "is the rule itself"
	case ref.parent && ref.to.Unlimited:
		return "is unlimited; a parent has limits, which must have room"
	case ref.parent && ref.from.Enabled && !ref.to.Enabled:
		return "is disabled; without a parent, the mode is hard"
	}
	return ""
}

func (l *loader) refuse(ref reference, reason string) {
	l.problems.Add(Problem{
		File: ref.from.file, Line: ref.line, Column: ref.column,
		Rule: ref.from.ID, Field: ref.field, Message: problem.Quote(ref.id) + " " + reason,
	})
}

// graph holds references of one kind.
type graph struct {
	from  []*Rule // in the order of their first references
	edges map[*Rule][]reference
}

func newGraph() *graph { return &graph{edges: make(map[*Rule][]reference)} }

func (g *graph) add(ref reference) {
	if len(g.edges[ref.from]) == 0 {
		g.from = append(g.from, ref.from)
	}
	g.edges[ref.from] = append(g.edges[ref.from], ref)
}

// circles calls closes for one reference of every circle.
func (g *graph) circles(closes func(reference)) {
	done := make(map[*Rule]bool) // false while on the way
	var visit func(r *Rule)
	visit = func(r *Rule) {
		done[r] = false
		for _, ref := range g.edges[r] {
			if finished, seen := done[ref.to]; !seen {
				visit(ref.to)
			} else if !finished {
				closes(ref)
			}
		}
		done[r] = true
	}
	for _, r := range g.from {
		if !done[r] {
			visit(r)
		}
	}
}
