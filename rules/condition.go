package rules

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/weirlimit/weir/rules/internal/counter"
)

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
