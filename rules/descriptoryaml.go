package rules

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// This file reads YAML as the parser of envoyproxy/ratelimit does, that of YAML 1.1: with
// aliases, merge keys, and scalars that are text whatever they look like.

// follow returns what n stands for.
func (d *decoder) follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (d *decoder) isMapping(n *yaml.Node, at path) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	what := quote(n.Value)
	if n.Kind == yaml.SequenceNode {
		what = "a list"
	}
	d.problem(n, at, "config error, yaml file contains %s instead of a mapping", what)
	return false
}

// mappings calls each for the elements of a list of mappings, or of nothing.
func (d *decoder) mappings(n *yaml.Node, at path, each func(n *yaml.Node, at path)) {
	if n = d.follow(n); isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(n, at, "is not a list")
		return
	}
	if !d.visit(len(n.Content), n, at) {
		return
	}
	for i, e := range n.Content {
		if d.visits > maxVisits {
			return
		}
		if e = d.follow(e); e.Kind != yaml.MappingNode {
			d.visits += 100 // to tell of it costs more
			d.problem(e, at.index(i), "config error, yaml file contains list of type other than map: %s", quote(e.Value))
			continue
		}
		each(e, at.index(i))
	}
}

// pair is an entry of a mapping. One that is merged gives way to others.
type pair struct {
	key, value *yaml.Node
	merged     bool
}

// pairs returns the entries of a mapping in their order: first those that merge keys bring.
func (d *decoder) pairs(n *yaml.Node, at path, depth int) []pair {
	if !d.visit(len(n.Content)/2, n, at) {
		return nil
	}
	var merged, own []pair
	keys := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			own = append(own, pair{key: key, value: value})
			keys[key.Value] = true
			continue
		}
		from := []*yaml.Node{d.follow(value)}
		if from[0].Kind == yaml.SequenceNode {
			from = slices.Clone(from[0].Content)
			slices.Reverse(from) // of several, the first wins
		}
		for _, m := range from {
			if d.visits > maxVisits {
				return nil
			}
			if m = d.follow(m); m.Kind != yaml.MappingNode || depth == maxDepth {
				d.problem(key, at, "a merge key takes a mapping, and at most %d one in the other", maxDepth)
				continue
			}
			for _, p := range d.pairs(m, at, depth+1) {
				merged = append(merged, pair{p.key, p.value, true})
			}
		}
	}
	return append(slices.DeleteFunc(merged, func(p pair) bool { return keys[p.key.Value] }), own...)
}

// visit reports whether so many elements may be read yet. Aliases could make them more
// than a file has by any factor.
func (d *decoder) visit(elements int, n *yaml.Node, at path) bool {
	before := d.visits
	if d.visits += elements; d.visits <= maxVisits {
		return true
	}
	if before <= maxVisits {
		d.problem(n, at, "the aliases so far stand for more than %d elements", maxVisits)
	}
	return false
}

// leaf reads a scalar as text, whatever YAML takes it for; nothing is an empty text.
func (d *decoder) leaf(n *yaml.Node, at path) string {
	n = d.follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.problem(n, at, "is not text")
		return ""
	case isNull(n):
		return ""
	case n.Tag == "!!float":
		d.problem(n, at, "error checking config: %s is a number with a fraction, not text; put it in quotes", quote(n.Value))
	}
	return n.Value
}

// bounded is leaf of so many bytes at most.
func (d *decoder) bounded(n *yaml.Node, at path) string {
	text := d.leaf(n, at)
	if len(text) > maxLyftText {
		d.problem(n, at, "%s has %d bytes, more than %d", quote(text), len(text), maxLyftText)
	}
	return text
}

// yesNo reads a boolean of YAML 1.1.
func (d *decoder) yesNo(n *yaml.Node, at path) bool {
	n = d.follow(n)
	plain := n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	switch text := strings.ToLower(n.Value); {
	case isNull(n):
		return false
	case plain && slices.Contains([]string{"true", "yes", "on", "y"}, text):
		return true
	case !plain || !slices.Contains([]string{"false", "no", "off", "n"}, text):
		d.problem(n, at, "%s is not true or false", quote(n.Value))
	}
	return false
}

func (d *decoder) uint32(n *yaml.Node, at path) uint32 {
	n = d.follow(n)
	if isNull(n) {
		return 0
	}
	value, err := strconv.ParseUint(strings.ReplaceAll(n.Value, "_", ""), 0, 32)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil {
		d.problem(n, at, "%s is not a whole number between 0 and %d", quote(n.Value), uint32(math.MaxUint32))
	}
	return uint32(value)
}

// metadata reads a mapping of anything.
func (d *decoder) metadata(n *yaml.Node, at path) map[string]any {
	n = d.follow(n)
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		d.problem(n, at, "error parsing metadata: is not a mapping")
		return nil
	}
	value, _ := d.anything(n, at, 0).(map[string]any)
	return value
}

// anything reads a value as encoding/json would have it.
func (d *decoder) anything(n *yaml.Node, at path, depth int) any {
	n = d.follow(n)
	if d.nodes++; d.nodes > maxRules || depth > maxMetadataDepth {
		if d.nodes == maxRules+1 || depth > maxMetadataDepth {
			d.problem(n, at, "error parsing metadata: more than %d values in all, or one in the other more than %d deep", maxRules, maxMetadataDepth)
		}
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, p := range d.pairs(n, at, 0) {
			m[p.key.Value] = d.anything(p.value, at.key(p.key.Value), depth+1)
		}
		return m
	case yaml.SequenceNode:
		if !d.visit(len(n.Content), n, at) {
			return nil
		}
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = d.anything(e, at.index(i), depth+1)
		}
		return list
	}
	return d.scalar(n, at)
}

func (d *decoder) scalar(n *yaml.Node, at path) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var f float64
		if n.Decode(&f) != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			d.problem(n, at, "error parsing metadata: %s is not a finite number", quote(n.Value))
		}
		return f
	}
	return n.Value
}
