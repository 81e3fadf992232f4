package envoy

import (
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// This file reads YAML as the parser of envoyproxy/ratelimit does, that of YAML 1.1: with aliases, merge
// keys, and scalars that are text even if they look like numbers.

// follow returns what n stands for.
func (d *Reader) follow(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

func (d *Reader) isMapping(n *yaml.Node, at problem.Path) bool {
	if n.Kind == yaml.MappingNode {
		return true
	}
	what := problem.Quote(n.Value)
	if n.Kind == yaml.SequenceNode {
		what = "a list"
	}
	d.problem(n, at, "config error, yaml file contains %s instead of a mapping", what)
	return false
}

// mappings calls each for the elements of a list of mappings, or of nothing.
func (d *Reader) mappings(n *yaml.Node, at problem.Path, each func(n *yaml.Node, at problem.Path)) {
	if n = d.follow(n); yamlnode.IsNull(n) {
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
			d.problem(e, at.Index(i), "config error, yaml file contains list of type other than map: %s", problem.Quote(e.Value))
			continue
		}
		each(e, at.Index(i))
	}
}

// pair is an entry of a mapping. One that is merged gives way to others.
type pair struct {
	key, value *yaml.Node
	merged     bool
}

// pairs returns the entries of a mapping in their order: first those that merge keys bring.
func (d *Reader) pairs(n *yaml.Node, at problem.Path, depth int) []pair {
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
func (d *Reader) visit(elements int, n *yaml.Node, at problem.Path) bool {
	before := d.visits
	if d.visits += elements; d.visits <= maxVisits {
		return true
	}
	if before <= maxVisits {
		d.problem(n, at, "the aliases so far stand for more than %d elements", maxVisits)
	}
	return false
}

// kindOf is the tag of a scalar, but that -0 is a whole number there.
func kindOf(n *yaml.Node) string {
	if n.Tag == "!!float" && n.Value == "-0" {
		return "!!int"
	}
	return n.Tag
}

// leaf reads a scalar as text, even if YAML takes it for another type; nothing is an empty text.
func (d *Reader) leaf(n *yaml.Node, at problem.Path) string {
	n = d.follow(n)
	switch {
	case n.Kind != yaml.ScalarNode:
		d.problem(n, at, "is not text")
		return ""
	case yamlnode.IsNull(n):
		return ""
	case kindOf(n) == "!!float":
		d.problem(n, at, "error checking config: %s is a number with a fraction, not text; put it in quotes", problem.Quote(n.Value))
	}
	return d.characters(n, at)
}

// characters returns the text of a scalar, which base64 stands for if it is tagged !!binary.
func (d *Reader) characters(n *yaml.Node, at problem.Path) string {
	if n.Tag != "!!binary" {
		return n.Value
	}
	text, err := base64.StdEncoding.DecodeString(n.Value)
	switch {
	case err != nil:
		d.problem(n, at, "error loading config file: %s is tagged !!binary and not base64", problem.Quote(n.Value))
	case !utf8.Valid(text):
		d.problem(n, at, "%s stands for %s, which is not UTF-8, and no request has such a text", problem.Quote(n.Value), problem.Quote(string(text)))
	}
	return string(text)
}

// bounded is leaf of so many bytes at most.
func (d *Reader) bounded(n *yaml.Node, at problem.Path) string {
	text := d.leaf(n, at)
	if len(text) > maxText {
		d.problem(n, at, "%s has %d bytes, more than %d", problem.Quote(text), len(text), maxText)
	}
	return text
}

// yesNo reads a boolean of YAML 1.1.
func (d *Reader) yesNo(n *yaml.Node, at problem.Path) bool {
	n = d.follow(n)
	plain := n.Kind == yaml.ScalarNode && n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) == 0
	switch text := strings.ToLower(n.Value); {
	case yamlnode.IsNull(n):
		return false
	case plain && slices.Contains([]string{"true", "yes", "on", "y"}, text):
		return true
	case !plain || !slices.Contains([]string{"false", "no", "off", "n"}, text):
		d.problem(n, at, "%s is not true or false", problem.Quote(n.Value))
	}
	return false
}

func (d *Reader) uint32(n *yaml.Node, at problem.Path) uint32 {
	n = d.follow(n)
	if yamlnode.IsNull(n) {
		return 0
	}
	value, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64) // +5 and -0 are numbers, too
	if n.Kind != yaml.ScalarNode || kindOf(n) != "!!int" || err != nil || value < 0 || value > math.MaxUint32 {
		d.problem(n, at, "%s is not a whole number between 0 and %d", problem.Quote(n.Value), uint32(math.MaxUint32))
	}
	return uint32(value)
}

// metadata reads a mapping of anything.
func (d *Reader) metadata(n *yaml.Node, at problem.Path) map[string]any {
	n = d.follow(n)
	if yamlnode.IsNull(n) {
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
func (d *Reader) anything(n *yaml.Node, at problem.Path, depth int) any {
	n = d.follow(n)
	if d.nodes++; d.nodes > maxNodes || depth > maxMetadataDepth {
		if d.nodes == maxNodes+1 || depth > maxMetadataDepth {
			d.problem(n, at, "error parsing metadata: more than %d values in all, or one in the other more than %d deep", maxNodes, maxMetadataDepth)
		}
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any)
		for _, p := range d.pairs(n, at, 0) {
			m[p.key.Value] = d.anything(p.value, at.Key(p.key.Value), depth+1)
		}
		return m
	case yaml.SequenceNode:
		if !d.visit(len(n.Content), n, at) {
			return nil
		}
		list := make([]any, len(n.Content))
		for i, e := range n.Content {
			list[i] = d.anything(e, at.Index(i), depth+1)
		}
		return list
	}
	return d.scalar(n, at)
}

func (d *Reader) scalar(n *yaml.Node, at problem.Path) any {
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
			d.problem(n, at, "error parsing metadata: %s is not a finite number", problem.Quote(n.Value))
		}
		return f
	}
	return d.characters(n, at)
}
