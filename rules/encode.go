package rules

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// This file is the inverse of format.go: plain data as the YAML nodes of a file.
// Nodes that were not read have line 0.

func (doc Document) node() *yaml.Node {
	var m entries
	m.add("domain", textNode(doc.Domain))
	if len(doc.Rules) > 0 || doc.Descriptors == nil {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range doc.Rules {
			list.Content = append(list.Content, s.node())
		}
		if len(doc.Rules) == 0 {
			list.Style = yaml.FlowStyle // []
		}
		m.add("rules", list)
	}
	if doc.Descriptors != nil { // beside rules, they are refused
		m.add("descriptors", descriptorsNode(doc.Descriptors))
	}
	return m.node(0)
}

func (s Spec) node() *yaml.Node {
	var m entries
	m.add("id", textNode(s.ID))
	if len(s.When) > 0 {
		var when entries
		for _, attribute := range slices.Sorted(maps.Keys(s.When)) {
			when.add(attribute, s.When[attribute].node())
		}
		m.add("when", when.node(0))
	}
	switch {
	case len(s.Per) == 1:
		m.add("per", textsNode(s.Per[0]))
	case len(s.Per) > 1:
		sets := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, set := range s.Per {
			sets.Content = append(sets.Content, textsNode(set))
		}
		m.add("per", sets)
	}
	if len(s.Limits) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, l := range s.Limits {
			list.Content = append(list.Content, l.node())
		}
		m.add("limits", list)
	}
	if s.Unlimited {
		m.add("unlimited", boolNode(true))
	}
	if len(s.Replaces) > 0 {
		m.add("replaces", textsNode(s.Replaces))
	}
	m.addText("on_failure", s.OnFailure)
	m.addText("durability", s.Durability)
	if s.Enforce != nil {
		m.add("enforce", intNode(*s.Enforce))
	}
	if s.Mode != nil {
		m.add("mode", s.Mode.node())
	}
	m.addText("max_delay", s.MaxDelay)
	if isWhole(s.Cost) {
		m.add("cost", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: s.Cost})
	} else {
		m.addText("cost", s.Cost)
	}
	m.addInt("ipv6_prefix", s.IPv6Prefix)
	if s.Enabled != nil {
		m.add("enabled", boolNode(*s.Enabled))
	}
	if s.Descriptor != nil {
		m.add("descriptor", s.Descriptor.node())
	}
	return m.node(0)
}

func (c ConditionSpec) node() *yaml.Node {
	var absent entries
	absent.add("absent", boolNode(true))
	switch {
	case c.Absent && len(c.AnyOf) == 0:
		return absent.node(yaml.FlowStyle)
	case c.Absent: // refused: a mapping among texts
		list := textsNode(c.AnyOf)
		list.Content = append(list.Content, absent.node(yaml.FlowStyle))
		return list
	case len(c.AnyOf) == 1:
		return textNode(c.AnyOf[0])
	}
	return textsNode(c.AnyOf)
}

func (l LimitSpec) node() *yaml.Node {
	var m entries
	m.add("limit", intNode(l.Limit))
	m.addText("window", l.Window)
	if c := l.Calendar; c != nil { // a second window is refused
		var window entries
		window.add("calendar", textNode(c.Calendar))
		window.addText("timezone", c.Timezone)
		window.addInt("anchor", c.Anchor)
		m.add("window", window.node(yaml.FlowStyle))
	}
	m.addInt("burst", l.Burst)
	m.addInt("buckets", l.Buckets)
	m.addText("algorithm", l.Algorithm)
	return m.node(yaml.FlowStyle)
}

func (s ModeSpec) node() *yaml.Node {
	var m entries
	if s.Soft != nil {
		var soft entries
		soft.add("over", textNode(s.Soft.Over))
		m.add("soft", soft.node(yaml.FlowStyle))
	}
	if s.Elastic != nil {
		var elastic entries
		elastic.add("parent", textNode(s.Elastic.Parent))
		elastic.add("up_to", textNode(s.Elastic.UpTo))
		m.add("elastic", elastic.node(yaml.FlowStyle))
	}
	return m.node(yaml.FlowStyle)
}

// entries are the keys and values of a mapping in order.
type entries []*yaml.Node

func (m *entries) add(key string, value *yaml.Node) { *m = append(*m, textNode(key), value) }

// addText adds a text unless it is empty, which means the default.
func (m *entries) addText(key, text string) {
	if text != "" {
		m.add(key, textNode(text))
	}
}

// addInt adds a number unless it is 0, which means the default.
func (m *entries) addInt(key string, value int64) {
	if value != 0 {
		m.add(key, intNode(value))
	}
}

func (m entries) node(style yaml.Style) *yaml.Node {
	return &yaml.Node{Kind: yaml.MappingNode, Style: style, Content: m}
}

func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		n.Style = yaml.DoubleQuotedStyle // escapes what a plain text cannot hold
	}
	return n
}

func textsNode(texts []string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, t := range texts {
		n.Content = append(n.Content, textNode(t))
	}
	return n
}

func intNode(value int64) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(value, 10)}
}

func boolNode(value bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(value)}
}

// isWhole says whether text is a decimal whole number of any size, without zeros
// before it.
func isWhole(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || digits == "0")
}
