package rules

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/counter"
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

// Condition is what a rule asks of one attribute.
type Condition struct {
	// Attribute names the attribute.
	Attribute string
	// AnyOf are the values that fit, as a rules file writes them: exact, "*",
	// "prefix*" or "re:expression"; for the attribute ip also blocks of addresses.
	// Empty if Absent.
	AnyOf []string
	// Absent asks that there is no such attribute.
	Absent bool

	// AnyOf compiled. No value fits more than one of exact, prefixes, and blocks of one
	// address, which the index relies on: a subject is found at most once.
	any      bool
	only     string         // exact if that is one value
	exact    []string       // sorted; no addresses, which are blocks of one
	prefixes []string       // sorted; none begins with another
	blocks   []netip.Prefix // sorted; none overlaps another
	regexps  []*regexp.Regexp
}

// place ends a sentence with where r stands, if it was read.
func (r *Rule) place() string {
	if r.line == 0 {
		return ""
	}
	return fmt.Sprintf(", at %s:%d", r.file, r.line)
}

// holdsFor says whether req, whose address is canonical, meets c.
func (c *Condition) holdsFor(req *Request) bool {
	value, present := req.value(c.Attribute)
	return c.holds(value, present) || c.covers(req.addr)
}

// holds says whether c is met by a value, or by the lack of one, blocks aside.
func (c *Condition) holds(value string, present bool) bool {
	if !present || c.Absent {
		return present != c.Absent
	}
	if c.any {
		return true
	}
	if c.only != "" && c.only == value || isOneOf(c.exact, value) || hasPrefixIn(c.prefixes, value) {
		return true
	}
	for _, re := range c.regexps {
		if re.MatchString(value) {
			return true
		}
	}
	return false
}

// isOnly says whether nothing but the value c.only meets c.
func (c *Condition) isOnly() bool {
	return c.only != "" && !c.any && len(c.prefixes)+len(c.blocks)+len(c.regexps) == 0
}

// covers says whether an address lies in one of c's blocks. The zero address lies
// in none.
func (c *Condition) covers(addr netip.Addr) bool {
	return len(c.blocks) > 0 && inBlocks(c.blocks, addr)
}

// isOneOf says whether value is one of sorted. Of few, it asks each: texts of different
// lengths are told apart at once.
func isOneOf(sorted []string, value string) bool {
	if len(sorted) > 16 {
		_, found := slices.BinarySearch(sorted, value)
		return found
	}
	return slices.Contains(sorted, value)
}

// hasPrefixIn says whether value begins with one of sorted, none of which begins
// with another.
func hasPrefixIn(sorted []string, value string) bool {
	if len(sorted) == 0 {
		return false
	}
	i, found := slices.BinarySearch(sorted, value)
	// What value begins with is not after it, and all between the two begin with it as well, so it is the
	// last one before.
	return found || i > 0 && strings.HasPrefix(value, sorted[i-1])
}

// inBlocks says whether addr lies in one of sorted, none of which overlaps another.
func inBlocks(sorted []netip.Prefix, addr netip.Addr) bool {
	i, found := slices.BinarySearchFunc(sorted, addr, func(b netip.Prefix, addr netip.Addr) int {
		return b.Addr().Compare(addr)
	})
	return found || i > 0 && sorted[i-1].Contains(addr)
}

// add takes in one more value that fits.
func (c *Condition) add(p pattern) {
	c.AnyOf = append(c.AnyOf, p.String())
	switch p.kind {
	case kindAny:
		c.any = true
	case kindExact:
		if p.block.IsValid() { // an address
			c.blocks = append(c.blocks, p.block)
		} else {
			c.exact = append(c.exact, p.text)
		}
	case kindPrefix:
		c.prefixes = append(c.prefixes, p.text)
	case kindRegexp:
		c.regexps = append(c.regexps, p.regexp)
	case kindBlock:
		c.blocks = append(c.blocks, p.block)
	}
}

// appendTo appends what c says: the same for conditions that hold for the same.
func (c *Condition) appendTo(b []byte) []byte {
	b = counter.AppendText(b, c.Attribute)
	b = binary.AppendUvarint(b, uint64(len(c.AnyOf))) // none if it is to be absent
	for _, p := range c.AnyOf {
		b = counter.AppendText(b, p)
	}
	return b
}

// normalize sorts, and drops what stands there twice or is covered already.
func (c *Condition) normalize() {
	slices.Sort(c.AnyOf)
	c.AnyOf = slices.Compact(c.AnyOf)
	slices.Sort(c.prefixes)
	c.prefixes = withoutCovered(c.prefixes, func(last, p string) bool { return strings.HasPrefix(p, last) })
	slices.SortFunc(c.blocks, netip.Prefix.Compare)
	c.blocks = withoutCovered(c.blocks, netip.Prefix.Overlaps)
	c.blocks = slices.DeleteFunc(c.blocks, func(b netip.Prefix) bool {
		return b.IsSingleIP() && hasPrefixIn(c.prefixes, b.Addr().String())
	})
	c.exact = slices.DeleteFunc(c.exact, func(v string) bool { return hasPrefixIn(c.prefixes, v) })
	slices.Sort(c.exact)
	c.exact = slices.Compact(c.exact)
	if len(c.exact) == 1 {
		c.only = c.exact[0]
	}
}

// withoutCovered leaves out of sorted what the last one kept covers.
func withoutCovered[T any](sorted []T, covers func(last, next T) bool) []T {
	kept := sorted[:0]
	for _, next := range sorted {
		if len(kept) == 0 || !covers(kept[len(kept)-1], next) {
			kept = append(kept, next)
		}
	}
	return kept
}

// compareConditions puts expressions last: they cost most.
func compareConditions(a, b Condition) int {
	return cmp.Or(
		cmp.Compare(min(len(a.regexps), 1), min(len(b.regexps), 1)),
		cmp.Compare(a.Attribute, b.Attribute),
	)
}
