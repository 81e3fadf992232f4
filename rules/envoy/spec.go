package envoy

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/rules/internal/yamlnode"
)

// Spec is one descriptor, as a file writes it.
type Spec struct {
	Key            string         `json:"key"`
	Value          string         `json:"value,omitempty"`
	RateLimit      *RateLimitSpec `json:"rate_limit,omitempty"`
	ShadowMode     bool           `json:"shadow_mode,omitempty"`
	QuotaMode      bool           `json:"quota_mode,omitempty"`
	DetailedMetric bool           `json:"detailed_metric,omitempty"`
	ValueToMetric  bool           `json:"value_to_metric,omitempty"`
	ShareThreshold bool           `json:"share_threshold,omitempty"`
	Metadata       map[string]any `json:"metadata,omitempty"`
	Descriptors    []Spec         `json:"descriptors,omitempty"`
}

// CountLimits returns how many descriptors have a limit.
func CountLimits(specs []Spec) int {
	n := 0
	for i := range specs {
		n += CountLimits(specs[i].Descriptors)
		if specs[i].RateLimit != nil {
			n++
		}
	}
	return n
}

// RateLimitSpec is the limit of a descriptor.
type RateLimitSpec struct {
	Name            string   `json:"name,omitempty"`
	Replaces        []string `json:"replaces,omitempty"` // written as mappings of a name each
	Unit            string   `json:"unit,omitempty"`
	RequestsPerUnit uint32   `json:"requests_per_unit"`
	Unlimited       bool     `json:"unlimited,omitempty"`
}

// Specs returns the descriptors of the tree as a file writes them.
func (t *Tree) Specs() []Spec { return t.root.specs() }

func (n *node) specs() []Spec {
	specs := make([]Spec, len(n.order))
	for i, child := range n.order {
		specs[i] = child.spec
		specs[i].Descriptors = child.specs()
	}
	return specs
}

// String returns s as YAML, nothing if it is nil.
func (s *Spec) String() string {
	if s == nil {
		return ""
	}
	text, err := yaml.Marshal(s.Node())
	if err != nil {
		return s.Key // of which YAML can write all, as it has read it
	}
	return string(text)
}

// SpecsNode returns the list of descriptors as YAML.
func SpecsNode(specs []Spec) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range specs {
		list.Content = append(list.Content, s.Node())
	}
	if len(specs) == 0 {
		list.Style = yaml.FlowStyle // []
	}
	return list
}

// Node returns the descriptor as YAML.
func (s Spec) Node() *yaml.Node {
	var m yamlnode.Mapping
	m.Add("key", yamlnode.Text(s.Key))
	m.AddText("value", s.Value)
	if s.RateLimit != nil {
		m.Add("rate_limit", s.RateLimit.node())
	}
	m.AddFlag("shadow_mode", s.ShadowMode)
	m.AddFlag("quota_mode", s.QuotaMode)
	m.AddFlag("detailed_metric", s.DetailedMetric)
	m.AddFlag("value_to_metric", s.ValueToMetric)
	m.AddFlag("share_threshold", s.ShareThreshold)
	if len(s.Metadata) > 0 {
		m.Add("metadata", metadataNode(s.Metadata))
	}
	if len(s.Descriptors) > 0 {
		m.Add("descriptors", SpecsNode(s.Descriptors))
	}
	return m.Node(0)
}

func (s *RateLimitSpec) node() *yaml.Node {
	var m yamlnode.Mapping
	m.AddText("name", s.Name)
	if len(s.Replaces) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, name := range s.Replaces {
			var replaced yamlnode.Mapping
			replaced.Add("name", yamlnode.Text(name))
			list.Content = append(list.Content, replaced.Node(yaml.FlowStyle))
		}
		m.Add("replaces", list)
	}
	m.AddText("unit", s.Unit)
	if s.Unlimited {
		m.AddFlag("unlimited", true)
	} else {
		m.Add("requests_per_unit", yamlnode.Int(int64(s.RequestsPerUnit)))
	}
	return m.Node(0)
}

// metadataNode writes values that encoding/json decodes into, which YAML has all.
func metadataNode(metadata map[string]any) *yaml.Node {
	n := new(yaml.Node)
	if err := n.Encode(metadata); err != nil {
		panic(fmt.Sprintf("envoy: encode plain data: %v", err)) // cannot be: no types but those
	}
	return n
}
