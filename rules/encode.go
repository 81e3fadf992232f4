package rules

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/problem"
	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// This file is the inverse of schema.go: plain data as the YAML nodes of a file.
// Nodes that were not read have line 0.

func (doc Document) node() *yaml.Node {
	var m yamlnode.Mapping
	m.Add("domain", yamlnode.Text(doc.Domain))
	if len(doc.Rules) > 0 || doc.Descriptors == nil {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, s := range doc.Rules {
			list.Content = append(list.Content, s.node())
		}
		if len(doc.Rules) == 0 {
			list.Style = yaml.FlowStyle // []
		}
		m.Add("rules", list)
	}
	if doc.Descriptors != nil { // with rules, they are refused
		m.Add("descriptors", envoy.SpecsNode(doc.Descriptors))
	}
	return m.Node(0)
}

func (s Spec) node() *yaml.Node {
	var m yamlnode.Mapping
	m.Add("id", yamlnode.Text(s.ID))
	if len(s.When) > 0 {
		var when yamlnode.Mapping
		for _, attribute := range slices.Sorted(maps.Keys(s.When)) {
			when.Add(attribute, s.When[attribute].node())
		}
		m.Add("when", when.Node(0))
	}
	switch {
	case len(s.Per) == 1:
		m.Add("per", yamlnode.Texts(s.Per[0]))
	case len(s.Per) > 1:
		sets := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, set := range s.Per {
			sets.Content = append(sets.Content, yamlnode.Texts(set))
		}
		m.Add("per", sets)
	}
	if len(s.Limits) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, l := range s.Limits {
			list.Content = append(list.Content, l.node())
		}
		m.Add("limits", list)
	}
	if s.Unlimited {
		m.Add("unlimited", yamlnode.Bool(true))
	}
	if len(s.Replaces) > 0 {
		m.Add("replaces", yamlnode.Texts(s.Replaces))
	}
	m.AddText("on_failure", s.OnFailure)
	m.AddText("durability", s.Durability)
	if s.Enforce != nil {
		m.Add("enforce", yamlnode.Int(*s.Enforce))
	}
	if s.Mode != nil {
		m.Add("mode", s.Mode.node())
	}
	m.AddText("max_delay", s.MaxDelay)
	if isWhole(s.Cost) {
		m.Add("cost", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: s.Cost})
	} else {
		m.AddText("cost", s.Cost)
	}
	m.AddInt("ipv6_prefix", s.IPv6Prefix)
	if s.Enabled != nil {
		m.Add("enabled", yamlnode.Bool(*s.Enabled))
	}
	if s.Descriptor != nil {
		m.Add("descriptor", s.Descriptor.Node())
	}
	return m.Node(0)
}

func (c ConditionSpec) node() *yaml.Node {
	var absent yamlnode.Mapping
	absent.Add("absent", yamlnode.Bool(true))
	switch {
	case c.Absent && len(c.AnyOf) == 0:
		return absent.Node(yaml.FlowStyle)
	case c.Absent: // refused: a mapping among texts
		list := yamlnode.Texts(c.AnyOf)
		list.Content = append(list.Content, absent.Node(yaml.FlowStyle))
		return list
	case len(c.AnyOf) == 1:
		return yamlnode.Text(c.AnyOf[0])
	}
	return yamlnode.Texts(c.AnyOf)
}

func (l LimitSpec) node() *yaml.Node {
	var m yamlnode.Mapping
	m.Add("limit", yamlnode.Int(l.Limit))
	m.AddText("window", l.Window)
	if c := l.Calendar; c != nil { // a second window is refused
		var window yamlnode.Mapping
		window.Add("calendar", yamlnode.Text(c.Calendar))
		window.AddText("timezone", c.Timezone)
		window.AddInt("anchor", c.Anchor)
		m.Add("window", window.Node(yaml.FlowStyle))
	}
	m.AddInt("burst", l.Burst)
	m.AddInt("buckets", l.Buckets)
	m.AddText("algorithm", l.Algorithm)
	return m.Node(yaml.FlowStyle)
}

func (s ModeSpec) node() *yaml.Node {
	var m yamlnode.Mapping
	if s.Soft != nil {
		var soft yamlnode.Mapping
		soft.Add("over", yamlnode.Text(s.Soft.Over))
		m.Add("soft", soft.Node(yaml.FlowStyle))
	}
	if s.Elastic != nil {
		var elastic yamlnode.Mapping
		elastic.Add("parent", yamlnode.Text(s.Elastic.Parent))
		elastic.Add("up_to", yamlnode.Text(s.Elastic.UpTo))
		m.Add("elastic", elastic.Node(yaml.FlowStyle))
	}
	return m.Node(yaml.FlowStyle)
}

// isWhole says whether text is a decimal whole number of any size, without zeros
// before it.
func isWhole(text string) bool {
	digits := strings.TrimPrefix(text, "-")
	return digits != "" && strings.Trim(digits, "0123456789") == "" && (digits[0] != '0' || digits == "0")
}

// Format writes documents as a file that Parse reads, unless it is longer than a
// file may be: then it takes several. It checks nothing that Compile does; the
// error is of text that YAML has no way to write.
func Format(docs []Document) ([]byte, error) {
	if len(docs) == 0 {
		docs = []Document{{Domain: "default"}} // a file without a document is refused
	}
	var b bytes.Buffer
	e, err := yaml.NewDumper(&b, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("format rules: %w", err)
	}
	for _, doc := range docs {
		n := doc.node()
		if err := writable(n); err != nil {
			return nil, fmt.Errorf("format rules of domain %s: %w", problem.Quote(doc.Domain), err)
		}
		if err := e.Dump(n); err != nil {
			return nil, fmt.Errorf("format rules of domain %s: %w", problem.Quote(doc.Domain), err)
		}
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("format rules: %w", err)
	}
	return b.Bytes(), nil
}

// writable returns an error if n holds text that is not UTF-8: YAML would have it as
// binary data, which a file of rules may not.
func writable(n *yaml.Node) error {
	if !utf8.ValidString(n.Value) {
		return fmt.Errorf("%s is not valid UTF-8", problem.Quote(n.Value))
	}
	for _, child := range n.Content {
		if err := writable(child); err != nil {
			return err
		}
	}
	return nil
}
