package rules

import "github.com/weirlimit/weir/rules/envoy"

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
