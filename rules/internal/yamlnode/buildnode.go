// Package yamlnode makes YAML nodes of plain values, and looks values up in nodes. Nodes that were not read
// have line 0.
package yamlnode

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// Mapping are the keys and values of a mapping in order.
type Mapping []*yaml.Node

// Add adds a value of any kind.
func (m *Mapping) Add(key string, value *yaml.Node) { *m = append(*m, Text(key), value) }

// AddText adds a text unless it is empty, which means the default.
func (m *Mapping) AddText(key, text string) {
	if text != "" {
		m.Add(key, Text(text))
	}
}

// AddInt adds a number unless it is 0, which means the default.
func (m *Mapping) AddInt(key string, value int64) {
	if value != 0 {
		m.Add(key, Int(value))
	}
}

// AddFlag adds what is set; false is the default.
func (m *Mapping) AddFlag(key string, set bool) {
	if set {
		m.Add(key, Bool(true))
	}
}

// Node returns the mapping.
func (m Mapping) Node(style yaml.Style) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: style, Content: m}
}

// Text returns a text.
func Text(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		n.Style = yaml.DoubleQuotedStyle // escapes what a plain text cannot hold
	}
	return n
}

// Texts returns a list of texts, in one line.
func Texts(texts []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, t := range texts {
		n.Content = append(n.Content, Text(t))
	}
	return n
}

// Int returns a whole number.
func Int(value int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(value, 10)}
}

// Bool returns true or false.
func Bool(value bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)}
}
