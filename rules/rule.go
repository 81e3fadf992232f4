package rules

import (
	"fmt"
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
)

// Rule is one named limit, or several under one name. It belongs to a Set and is
// read-only, its slices included.
type Rule struct {
	// Domain and ID together name the rule.
	Domain, ID string
	// When are the conditions, at most one per attribute: those with regular
	// expressions last, otherwise by attribute.
	When []Condition
	// Per are sets of attributes whose values choose the counters: all limits once
	// per set that a request has all attributes of, and the rule matches if there is
	// one. None means counters that all requests share. All sorted.
	Per [][]string
	// Unlimited exempts the requests that match from all rules of the domain but
	// those that block, or from Replaces alone if there are any.
	Unlimited bool
	// Replaces are the ids of rules of the domain that do not apply to a request which
	// this one matches, sorted.
	Replaces []string
	// IPv6Prefix is how many bits of an IPv6 address tell counters apart.
	IPv6Prefix int
	// Enabled is false for a rule that never matches.
	Enabled bool
	// Descriptor is nil, unless the rule is one of envoyproxy/ratelimit. Then Match does not
	// find it, but Descriptors.Match, and it has at most one limit.
	Descriptor *envoy.Descriptor

	maxDelay     int64  // of all Limits
	line, column int    // where it begins
	file         string // and in which file

	// What follows is read for every decision. It stands together: of many rules, each
	// cache line is a miss.

	// Limits must all have room. At least one, and no two that would share a counter;
	// none if Unlimited.
	Limits []algorithms.Limit
	// Mode says what happens above the limits.
	Mode Mode
	// Enforce is the percentage of counters whose denials deny, 0 to 100.
	Enforce int64
	// OnFailure says what happens if no node can decide.
	OnFailure FailurePolicy
	// Durability says what is forgotten at most when a node dies.
	Durability Durability

	cost          int64  // per token asked for, or if
	costAttribute string // is not empty, the value of that

	// Set by prepare:

	raised   []algorithms.Limit // Limits with what Mode allows above them; none if it is hard
	order    int                // rank in the Set
	subjects []namedSubject     // one per set of Per, or one of no attributes

	// Set by link:

	replacedRules []*Rule // Replaces
	parent        *Rule   // Mode.Parent
}

// blocks says whether a limit is 0.
func (r *Rule) blocks() bool {
	return slices.ContainsFunc(r.Limits, func(l algorithms.Limit) bool { return l.Limit == 0 })
}

// subject is a Rule with one set of its Per: what has counters of its own.
type subject struct {
	rule *Rule
	kind *kind
	rank uint32 // Rule.order, and in the last byte the index in Rule.Per
}

// namedSubject is a subject with the encodings of domain, id and the first attribute of
// the set.
type namedSubject struct {
	subject
	name string
}

// kind is what the subjects of many rules have in common, so that it stays in the
// cache.
type kind struct {
	per   []string // the set
	ip    int      // index of the attribute ip in per, or -1
	bits  int      // of an IPv6 address there
	more  []string // encodings of per, except for the first
	salts []uint64 // by index in Limits

	plain     bool // a match needs nothing but a key
	unlimited bool // or not even that; per is empty
	blocks    bool // a limit is 0
	enforce   int64
	mode      ModeKind
	above     []int64 // by index in Limits; none if mode is hard
	replaces  []*Rule
	parent    *Rule
}

// index returns the index of s's set in Rule.Per.
func (s *subject) index() int { return int(s.rank & 0xff) }

// orderOf returns the Rule.order in a rank.
func orderOf(rank uint32) int { return int(rank >> 8) }

// place ends a sentence with where r stands, if it was read.
func (r *Rule) place() string {
	if r.line == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s:%d", r.file, r.line)
}
