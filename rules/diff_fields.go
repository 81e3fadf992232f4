package rules

import (
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
)

// FieldChange is one field in which two rules differ.
type FieldChange struct {
	// Field is the way to the value, such as limits[0].limit.
	Field string
	// Old and New are the values as a file writes them, empty where there is none.
	Old, New string
}

// Details returns the values that differ, in the order of the new rule, behind it
// those that it lacks.
func (c Change) Details() []FieldChange {
	before, after := leaves(c.Old.node(), problem.Path{}, nil), leaves(c.New.node(), problem.Path{}, nil)
	old := make(map[string]string, len(before))
	for _, l := range before {
		old[l.field] = l.text
	}
	var changes []FieldChange
	for _, l := range after {
		if was := old[l.field]; was != l.text {
			changes = append(changes, FieldChange{l.field, was, l.text})
		}
		delete(old, l.field)
	}
	for _, l := range before {
		if _, gone := old[l.field]; gone {
			changes = append(changes, FieldChange{Field: l.field, Old: l.text})
		}
	}
	return changes
}

// leaf is a scalar or a list of scalars, and the way to it.
type leaf struct{ field, text string }

// leaves appends the leaves of n.
func leaves(n *yaml.Node, at problem.Path, to []leaf) []leaf {
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			to = leaves(n.Content[i+1], at.Key(n.Content[i].Value), to)
		}
		return to
	case n.Kind == yaml.SequenceNode && len(n.Content) > 0 && n.Content[0].Kind != yaml.ScalarNode:
		for i, e := range n.Content {
			to = leaves(e, at.Index(i), to)
		}
		return to
	case n.Kind == yaml.SequenceNode:
		texts := make([]string, len(n.Content))
		for i, e := range n.Content {
			texts[i] = e.Value
		}
		return append(to, leaf{at.Field, "[" + strings.Join(texts, ", ") + "]"})
	}
	return append(to, leaf{at.Field, n.Value})
}
