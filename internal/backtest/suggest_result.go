package backtest

import (
	"github.com/weirlimit/weir/rules"
)

// Suggestion is what a Suggester has found.
type Suggestion struct {
	LogFacts

	// Touch and Headroom are those of the SuggestConfig, in percent.
	Touch    float64          `json:"touch_percent"`
	Headroom float64          `json:"headroom_percent"`
	Rules    []RuleSuggestion `json:"rules"`
	// Notes are what to know about the log before using Limits of any rule.
	Notes []string `json:"notes,omitempty"`

	set *rules.Set
	own bool // the rules are made of SuggestConfig.Per
}

// RuleSuggestion is about the keys of one rule.
type RuleSuggestion struct {
	Domain string `json:"domain"`
	Rule   string `json:"rule"`
	// Lines are those that the rule applies to, once for each set of attributes that they have a key of.
	Lines int64 `json:"lines"`
	// Keys were measured: all, or one in SampledOneIn, chosen by chance. The numbers of keys below are of those.
	Keys         int   `json:"keys"`
	SampledOneIn int64 `json:"sampled_one_in"`
	// WellBehaved are those that no sign takes for a machine. All limits together touch at most MayTouch of them.
	WellBehaved int `json:"well_behaved"`
	MayTouch    int `json:"may_touch"`
	// Limits are empty if none can be told; Notes say why.
	Limits []LimitSuggestion `json:"limits"`
	// Notes are what to know before using Limits.
	Notes []string `json:"notes,omitempty"`
	// Needs say what well-behaved keys need of a sliding window, by its length.
	Needs []Needs `json:"needs,omitempty"`
	// Machines are those with the most lines, of MachineKeys, which have MachineLines in all.
	MachineKeys  int       `json:"machine_keys"`
	MachineLines int64     `json:"machine_lines"`
	Machines     []Machine `json:"machines,omitempty"`
}

// LimitSuggestion is one limit, and why.
type LimitSuggestion struct {
	// Limit is in tokens per window, and Window in nanoseconds. Burst is 0 for a sliding window.
	Limit     int64  `json:"limit"`
	Window    int64  `json:"window"`
	Burst     int64  `json:"burst,omitempty"`
	Algorithm string `json:"algorithm"`
	// Needed is the least limit, or of a token bucket the least burst at a rate of Rate per window, that touches no more
	// keys than it may. Limit and Burst are higher by the headroom.
	Needed int64 `json:"needed"`
	Rate   int64 `json:"rate,omitempty"`
	// Touched are how many of the well-behaved keys the limit touches, at most, and TouchedKeys those that need most.
	Touched     int       `json:"touched"`
	TouchedKeys []NearKey `json:"touched_keys,omitempty"`
	// MachinesTouched are how many of the machines it touches, at most.
	MachinesTouched int `json:"machines_touched"`
	// BurstNeeds is what a token bucket of each rate needs.
	BurstNeeds []BurstNeed `json:"bursts"`
	// Reasons are for people, a sentence each.
	Reasons []string `json:"reasons"`
}

// Telling returns BurstNeeds up to the rate above which a higher one makes no difference.
func (s *LimitSuggestion) Telling() []BurstNeed {
	for i := 1; i < len(s.BurstNeeds); i++ {
		if s.BurstNeeds[i].Burst == s.BurstNeeds[i-1].Burst && s.BurstNeeds[i].Burst == s.BurstNeeds[len(s.BurstNeeds)-1].Burst {
			return s.BurstNeeds[:i]
		}
	}
	return s.BurstNeeds
}

// BurstNeed is the least burst that touches no more keys than it may, at a rate in tokens per window.
type BurstNeed struct {
	Rate  int64 `json:"rate"`
	Burst int64 `json:"burst"`
}

// Needs are quantiles, in tokens, of what each key needs of a sliding window: the lowest limit that never denies it.
type Needs struct {
	Window int64 `json:"window"` // in nanoseconds
	Half   int64 `json:"half"`
	Most90 int64 `json:"p90"`
	Most99 int64 `json:"p99"`
	All    int64 `json:"all"`
}

// Bounds of the lists of a Suggestion, per rule and limit.
const (
	machinesShown = 20
	touchedShown  = 10
	guessedKeys   = 5  // percent of the keys, or
	guessedShare  = 20 // percent of the lines, from which on signs that people can have are noted
	fewKeys       = 30 // well-behaved ones are too few to tell what others need
)

// noticeable is the share of the lines from which on it matters that they are wrong.
const noticeable = 0.01

// Read is how many lines the limits are made of: those that are not Skipped.
func (s *Suggestion) Read() int64 {
	n := s.Lines
	for _, skipped := range s.Skipped {
		n -= skipped
	}
	return n
}
