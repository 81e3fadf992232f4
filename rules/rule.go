package rules

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/algorithms"
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
	// Limits must all have room. At least one; no two of one algorithm and window.
	Limits []algorithms.Limit
	// Enabled is false for a rule that never matches.
	Enabled bool

	line, column int    // where it begins
	file         string // and in which file

	// Set by prepare:

	order    int       // rank in the Set
	name     []byte    // encoding of domain and id
	subjects []subject // one per set of Per, or one of no attributes
	salts    []uint64  // by index in Limits
}

// subject is a Rule with one set of its Per: what has counters of its own.
type subject struct {
	rule  *Rule
	index int      // in Per
	per   []string // the set
	names [][]byte // encodings of per
}

// Condition is what a rule asks of one attribute.
type Condition struct {
	// Attribute names the attribute.
	Attribute string
	// AnyOf are the values that fit, as a rules file writes them: exact, "*",
	// "prefix*" or "re:expression". Empty if Absent.
	AnyOf []string
	// Absent asks that there is no such attribute.
	Absent bool

	// AnyOf compiled. No value fits more than one of exact and prefixes, which the
	// index relies on: a rule is found at most once.
	any      bool
	exact    []string // sorted
	prefixes []string // sorted; none begins with another
	regexps  []*regexp.Regexp
}

// place ends a sentence with where r stands, if it was read.
func (r *Rule) place() string {
	if r.line == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s:%d", r.file, r.line)
}

// holds says whether c is met by a value, or by the lack of one.
func (c *Condition) holds(value string, present bool) bool {
	if !present || c.Absent {
		return present != c.Absent
	}
	if c.any {
		return true
	}
	if len(c.exact) == 1 && c.exact[0] == value {
		return true
	}
	if _, found := slices.BinarySearch(c.exact, value); found {
		return true
	}
	if hasPrefixIn(c.prefixes, value) {
		return true
	}
	for _, re := range c.regexps {
		if re.MatchString(value) {
			return true
		}
	}
	return false
}

// hasPrefixIn says whether value begins with one of sorted, none of which begins
// with another.
func hasPrefixIn(sorted []string, value string) bool {
	i, found := slices.BinarySearch(sorted, value)
	// What value begins with is not after it, and whatever lies between the two
	// begins with it as well, so it is the last one before.
	return found || i > 0 && strings.HasPrefix(value, sorted[i-1])
}

// add takes in one more value that fits.
func (c *Condition) add(p pattern) {
	c.AnyOf = append(c.AnyOf, p.String())
	switch p.kind {
	case kindAny:
		c.any = true
	case kindExact:
		c.exact = append(c.exact, p.text)
	case kindPrefix:
		c.prefixes = append(c.prefixes, p.text)
	case kindRegexp:
		c.regexps = append(c.regexps, p.regexp)
	}
}

// normalize sorts, and drops what a prefix covers already.
func (c *Condition) normalize() {
	slices.Sort(c.AnyOf)
	slices.Sort(c.prefixes)
	kept := c.prefixes[:0]
	for _, p := range c.prefixes {
		if len(kept) == 0 || !strings.HasPrefix(p, kept[len(kept)-1]) {
			kept = append(kept, p)
		}
	}
	c.prefixes = kept
	c.exact = slices.DeleteFunc(c.exact, func(v string) bool { return hasPrefixIn(kept, v) })
	slices.Sort(c.exact)
}

// compareConditions puts expressions last: they cost most.
func compareConditions(a, b Condition) int {
	return cmp.Or(
		cmp.Compare(min(len(a.regexps), 1), min(len(b.regexps), 1)),
		cmp.Compare(a.Attribute, b.Attribute),
	)
}

// compareLimits orders what no rule may hold twice.
func compareLimits(a, b algorithms.Limit) int {
	return cmp.Or(cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Window, b.Window))
}
