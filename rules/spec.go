package rules

// Document and what it holds are rules as a file writes them, in plain data: what
// an API, an editor or a diff handles. The tags are the keys of the format. Zero
// values are left out, and mean what a file means that does not mention the key.

// Document is one document of a rules file: the rules of one domain.
type Document struct {
	Domain string `json:"domain" yaml:"domain"`
	Rules  []Spec `json:"rules" yaml:"rules"`
}

// Spec is one rule.
type Spec struct {
	ID         string                   `json:"id" yaml:"id"`
	When       map[string]ConditionSpec `json:"when,omitempty" yaml:"when,omitempty"`
	Per        [][]string               `json:"per,omitempty" yaml:"per,omitempty"` // written flat if there is one
	Limits     []LimitSpec              `json:"limits,omitempty" yaml:"limits,omitempty"`
	Unlimited  bool                     `json:"unlimited,omitempty" yaml:"unlimited,omitempty"`
	Replaces   []string                 `json:"replaces,omitempty" yaml:"replaces,omitempty"`
	OnFailure  string                   `json:"on_failure,omitempty" yaml:"on_failure,omitempty"`
	Enforce    *int64                   `json:"enforce,omitempty" yaml:"enforce,omitempty"`
	Mode       *ModeSpec                `json:"mode,omitempty" yaml:"mode,omitempty"`
	MaxDelay   string                   `json:"max_delay,omitempty" yaml:"max_delay,omitempty"`
	Cost       string                   `json:"cost,omitempty" yaml:"cost,omitempty"` // a whole number or an attribute's name
	IPv6Prefix int64                    `json:"ipv6_prefix,omitempty" yaml:"ipv6_prefix,omitempty"`
	Enabled    *bool                    `json:"enabled,omitempty" yaml:"enabled,omitempty"`
}

// ConditionSpec is one condition: patterns, or Absent.
type ConditionSpec struct {
	AnyOf  []string // written as a scalar if there is one
	Absent bool
}

// LimitSpec is one limit of a rule.
type LimitSpec struct {
	Limit     int64         `json:"limit" yaml:"limit"`
	Window    string        `json:"window,omitempty" yaml:"window,omitempty"`
	Calendar  *CalendarSpec `json:"calendar,omitempty" yaml:"-"` // written as the window
	Burst     int64         `json:"burst,omitempty" yaml:"burst,omitempty"`
	Buckets   int64         `json:"buckets,omitempty" yaml:"buckets,omitempty"`
	Algorithm string        `json:"algorithm,omitempty" yaml:"algorithm,omitempty"`
}

// CalendarSpec is a window that follows the calendar.
type CalendarSpec struct {
	Calendar string `json:"calendar" yaml:"calendar"`
	Timezone string `json:"timezone,omitempty" yaml:"timezone,omitempty"`
	Anchor   int64  `json:"anchor,omitempty" yaml:"anchor,omitempty"`
}

// ModeSpec is how a rule treats what is above its limits: nil is hard.
type ModeSpec struct {
	Soft    *SoftSpec    `json:"soft,omitempty" yaml:"soft,omitempty"`
	Elastic *ElasticSpec `json:"elastic,omitempty" yaml:"elastic,omitempty"`
}

// SoftSpec lets a share above the limit through, flagged.
type SoftSpec struct {
	Over string `json:"over" yaml:"over"` // such as 10%
}

// ElasticSpec lets through up to a share of the limit while the parent has room.
type ElasticSpec struct {
	Parent string `json:"parent" yaml:"parent"`
	UpTo   string `json:"up_to" yaml:"up_to"` // such as 150%
}
