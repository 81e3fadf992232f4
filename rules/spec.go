package rules

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
)

// Document and what it holds are rules as a file writes them, in plain data: what
// an API, an editor or a diff handles. The tags are the keys of the format. Zero
// values are left out, and mean what a file means that does not mention the key.

// Document is one document of a rules file: the rules of one domain, or its descriptors
// if the file is one of envoyproxy/ratelimit.
type Document struct {
	Domain      string       `json:"domain"`
	Rules       []Spec       `json:"rules"`
	Descriptors []envoy.Spec `json:"descriptors,omitzero"` // not nil if there are none
}

// Limits returns how many descriptors have a limit.
func (doc Document) Limits() int { return envoy.CountLimits(doc.Descriptors) }

// Spec is one rule.
type Spec struct {
	ID         string                   `json:"id"`
	When       map[string]ConditionSpec `json:"when,omitempty"`
	Per        [][]string               `json:"per,omitempty"` // written flat if there is one
	Limits     []LimitSpec              `json:"limits,omitempty"`
	Unlimited  bool                     `json:"unlimited,omitempty"`
	Replaces   []string                 `json:"replaces,omitempty"`
	OnFailure  string                   `json:"on_failure,omitempty"`
	Durability string                   `json:"durability,omitempty"`
	Enforce    *int64                   `json:"enforce,omitempty"`
	Mode       *ModeSpec                `json:"mode,omitempty"`
	MaxDelay   string                   `json:"max_delay,omitempty"`
	Cost       string                   `json:"cost,omitempty"` // a whole number or an attribute's name
	IPv6Prefix int64                    `json:"ipv6_prefix,omitempty"`
	Enabled    *bool                    `json:"enabled,omitempty"`
	// Descriptor is that of a rule of envoyproxy/ratelimit, without those in it. It is for
	// showing: no file has it in a rule.
	Descriptor *envoy.Spec `json:"descriptor,omitempty"`
}

// ConditionSpec is one condition: patterns, or Absent.
type ConditionSpec struct {
	AnyOf  []string `json:"any_of,omitempty"` // written as a scalar if there is one
	Absent bool     `json:"absent,omitempty"`
}

// LimitSpec is one limit of a rule.
type LimitSpec struct {
	Limit     int64         `json:"limit"`
	Window    string        `json:"window,omitempty"`
	Calendar  *CalendarSpec `json:"calendar,omitempty"` // written as the window
	Burst     int64         `json:"burst,omitempty"`
	Buckets   int64         `json:"buckets,omitempty"`
	Algorithm string        `json:"algorithm,omitempty"`
}

// CalendarSpec is a window that follows the calendar.
type CalendarSpec struct {
	Calendar string `json:"calendar"`
	Timezone string `json:"timezone,omitempty"`
	Anchor   int64  `json:"anchor,omitempty"`
}

// ModeSpec is how a rule treats what is above its limits: nil is hard.
type ModeSpec struct {
	Soft    *SoftSpec    `json:"soft,omitempty"`
	Elastic *ElasticSpec `json:"elastic,omitempty"`
}

// SoftSpec allows requests in a share above the limit, flagged.
type SoftSpec struct {
	Over string `json:"over"` // such as 10%
}

// ElasticSpec allows up to a share of the limit above it while the parent has room.
type ElasticSpec struct {
	Parent string `json:"parent"`
	UpTo   string `json:"up_to"` // such as 150%
}

// Documents returns the rules as documents that Compile makes the same Set of:
// one per run of rules of one domain, without what the defaults say. Without rules
// there are none.
func (s *Set) Documents() []Document {
	var docs []Document
	for _, r := range s.rules {
		if r.Descriptor != nil {
			continue
		}
		if n := len(docs); n == 0 || docs[n-1].Domain != r.Domain {
			docs = append(docs, Document{Domain: r.Domain})
		}
		last := &docs[len(docs)-1]
		last.Rules = append(last.Rules, r.Spec())
	}
	return append(docs, s.describedDocuments()...)
}

// Spec returns what a file says of r, in its canonical form: without what the
// defaults say, lists sorted whose order says nothing.
func (r *Rule) Spec() Spec {
	s := Spec{ID: r.ID}
	for _, c := range r.When {
		if s.When == nil {
			s.When = make(map[string]ConditionSpec, len(r.When))
		}
		s.When[c.Attribute] = ConditionSpec{AnyOf: slices.Clone(c.AnyOf), Absent: c.Absent}
	}
	for _, set := range r.Per {
		s.Per = append(s.Per, slices.Clone(set))
	}
	for _, l := range r.Limits {
		s.Limits = append(s.Limits, limitSpec(l))
	}
	s.Unlimited = r.Unlimited
	s.Replaces = slices.Clone(r.Replaces)
	if r.OnFailure != FailAllow {
		s.OnFailure = r.OnFailure.String()
	}
	if r.Durability != Relaxed {
		s.Durability = r.Durability.String()
	}
	if r.Enforce != 100 {
		s.Enforce = new(r.Enforce)
	}
	switch r.Mode.Kind {
	case Hard: // which the format leaves out
	case Soft:
		s.Mode = &ModeSpec{Soft: &SoftSpec{Over: formatPercent(r.Mode.Percent)}}
	case Elastic:
		s.Mode = &ModeSpec{Elastic: &ElasticSpec{Parent: r.Mode.Parent, UpTo: formatPercent(100 + r.Mode.Percent)}}
	}
	if r.maxDelay != 0 {
		s.MaxDelay = formatWindow(time.Duration(r.maxDelay))
	}
	if r.cost != 1 {
		s.Cost = strconv.FormatInt(r.cost, 10)
	} else {
		s.Cost = r.costAttribute
	}
	if r.IPv6Prefix != defaultIPv6Prefix {
		s.IPv6Prefix = int64(r.IPv6Prefix)
	}
	if !r.Enabled {
		s.Enabled = new(false)
	}
	if r.Descriptor != nil {
		spec := r.Descriptor.Spec()
		s.Descriptor, s.OnFailure = &spec, ""
	}
	return s
}

func formatPercent(percent int64) string { return strconv.FormatInt(percent, 10) + "%" }

func limitSpec(l algorithms.Limit) LimitSpec {
	s := LimitSpec{Limit: l.Limit, Burst: l.Burst, Buckets: l.Buckets}
	if l.Calendar != nil {
		s.Calendar = calendarSpec(l.Calendar)
	} else {
		s.Window = formatWindow(time.Duration(l.Window))
	}
	if l.Algorithm != defaultAlgorithm {
		s.Algorithm = l.Algorithm.String()
	}
	return s
}

// calendarSpec takes a calendar's text apart: unit, zone, and maybe the anchor.
func calendarSpec(c *algorithms.Calendar) *CalendarSpec {
	unit, zone, _ := strings.Cut(c.String(), "/")
	s := &CalendarSpec{Calendar: unit, Timezone: zone}
	slash := strings.LastIndexByte(zone, '/')
	if anchor, err := strconv.ParseInt(zone[slash+1:], 10, 64); err == nil {
		s.Timezone, s.Anchor = zone[:max(0, slash)], anchor
	}
	if s.Timezone == "UTC" {
		s.Timezone = ""
	}
	return s
}
