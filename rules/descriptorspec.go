package rules

import (
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// DescriptorSpec is one descriptor of envoyproxy/ratelimit, as its files write it.
type DescriptorSpec struct {
	Key            string           `json:"key"`
	Value          string           `json:"value,omitempty"`
	RateLimit      *RateLimitSpec   `json:"rate_limit,omitempty"`
	ShadowMode     bool             `json:"shadow_mode,omitempty"`
	QuotaMode      bool             `json:"quota_mode,omitempty"`
	DetailedMetric bool             `json:"detailed_metric,omitempty"`
	ValueToMetric  bool             `json:"value_to_metric,omitempty"`
	ShareThreshold bool             `json:"share_threshold,omitempty"`
	Metadata       map[string]any   `json:"metadata,omitempty"`
	Descriptors    []DescriptorSpec `json:"descriptors,omitempty"`
}

// Limits is how many descriptors have a limit.
func (doc Document) Limits() int { return countLimits(doc.Descriptors) }

func countLimits(specs []DescriptorSpec) int {
	n := 0
	for i := range specs {
		n += countLimits(specs[i].Descriptors)
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

// Unit is the unit of time of a limit of envoyproxy/ratelimit. The numbers are those of
// Envoy's API; 0 is none.
type Unit uint8

// Second is the first of the units.
const Second Unit = 1

var unitNames = [...]string{1: "second", "minute", "hour", "day", "month", "year", "week"}

var unitWindows = [...]time.Duration{
	0, time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 365 * 24 * time.Hour, 7 * 24 * time.Hour,
}

// String returns the name that files use, such as "minute".
func (u Unit) String() string {
	if int(u) < len(unitNames) {
		return unitNames[u]
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}

// Window returns how long the unit is, in nanoseconds. A month has 30 days and a year 365,
// as there; no calendar is asked. It is 0 for what is no unit.
func (u Unit) Window() int64 {
	if int(u) < len(unitWindows) {
		return int64(unitWindows[u])
	}
	return 0
}

// ParseUnit reads the name of a unit, in any case. It is 0 if there is none of it.
func ParseUnit(name string) Unit {
	for u := Second; int(u) < len(unitNames); u++ {
		if strings.EqualFold(name, unitNames[u]) {
			return u
		}
	}
	return 0
}

// specs returns the children of n as a file writes them.
func (n *descriptor) specs() []DescriptorSpec {
	specs := make([]DescriptorSpec, len(n.order))
	for i, child := range n.order {
		specs[i] = child.spec
		specs[i].Descriptors = child.specs()
	}
	return specs
}

// String returns s as YAML, nothing if it is nil.
func (s *DescriptorSpec) String() string {
	if s == nil {
		return ""
	}
	text, err := yaml.Marshal(s.node())
	if err != nil {
		return s.Key // of which YAML can write all, as it has read it
	}
	return string(text)
}

func descriptorsNode(specs []DescriptorSpec) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for _, s := range specs {
		list.Content = append(list.Content, s.node())
	}
	if len(specs) == 0 {
		list.Style = yaml.FlowStyle // []
	}
	return list
}

func (s DescriptorSpec) node() *yaml.Node {
	var m entries
	m.add("key", textNode(s.Key))
	m.addText("value", s.Value)
	if s.RateLimit != nil {
		m.add("rate_limit", s.RateLimit.node())
	}
	m.addFlag("shadow_mode", s.ShadowMode)
	m.addFlag("quota_mode", s.QuotaMode)
	m.addFlag("detailed_metric", s.DetailedMetric)
	m.addFlag("value_to_metric", s.ValueToMetric)
	m.addFlag("share_threshold", s.ShareThreshold)
	if len(s.Metadata) > 0 {
		m.add("metadata", metadataNode(s.Metadata))
	}
	if len(s.Descriptors) > 0 {
		m.add("descriptors", descriptorsNode(s.Descriptors))
	}
	return m.node(0)
}

func (s *RateLimitSpec) node() *yaml.Node {
	var m entries
	m.addText("name", s.Name)
	if len(s.Replaces) > 0 {
		list := &yaml.Node{Kind: yaml.SequenceNode}
		for _, name := range s.Replaces {
			var replaced entries
			replaced.add("name", textNode(name))
			list.Content = append(list.Content, replaced.node(yaml.FlowStyle))
		}
		m.add("replaces", list)
	}
	m.addText("unit", s.Unit)
	if s.Unlimited {
		m.addFlag("unlimited", true)
	} else {
		m.add("requests_per_unit", intNode(int64(s.RequestsPerUnit)))
	}
	return m.node(0)
}

// metadataNode writes values that encoding/json decodes into, which YAML has all.
func metadataNode(metadata map[string]any) *yaml.Node {
	n := new(yaml.Node)
	if err := n.Encode(metadata); err != nil {
		panic(fmt.Sprintf("rules: encode plain data: %v", err)) // cannot be: no types but those
	}
	return n
}

// addFlag adds what is set; false is the default.
func (m *entries) addFlag(key string, set bool) {
	if set {
		m.add(key, boolNode(true))
	}
}
