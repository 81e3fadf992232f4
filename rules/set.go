package rules

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/internal/counter"
)

// Attribute is one named value of a request.
type Attribute = counter.Attribute

// Request is what rules are matched against.
type Request struct {
	// Domain is the namespace of the rules. There is no default here.
	Domain string
	// Attributes may stand in any order. No key may stand twice. At most 16, and
	// values of at most 256 bytes, keep Match from allocating; more work as well.
	Attributes []Attribute

	// Set for rules that look at addresses:

	addr netip.Addr // what the attribute ip says, if that is one
	ip   string     // its canonical text; empty if it says so itself, or is not needed
}

func (r *Request) value(key string) (string, bool) {
	for i := range r.Attributes {
		if r.Attributes[i].Key == key {
			return r.valueOf(i), true
		}
	}
	return "", false
}

// valueOf returns the value of an attribute, that of ip in its canonical form.
func (r *Request) valueOf(i int) string {
	if r.ip != "" && r.Attributes[i].Key == IPAttribute {
		return r.ip
	}
	return r.Attributes[i].Value
}

// Match is one limit that applies to a request.
type Match struct {
	Rule *Rule
	// Limit is the index of the limit in Rule.Limits, or -1 if Rule is unlimited and
	// exempts the request from everything: then it is the only Match.
	Limit int
	// Per is the index of the set of attributes in Rule.Per.
	Per int
	// Above is how many tokens above the limit are allowed as well, flagged.
	Above int64
	// Shadow says that a denial by this counter is not enforced.
	Shadow bool

	rank uint32 // of the subject; it fills the gap

	// Key is the counter's. The keys of one Rule and Per in one answer share their
	// Lo.
	Key ring.Key

	kind *kind // of the subject
}

// Held returns the limit that the counter is held against: with what is above. It
// is zero if the rule is unlimited.
func (m *Match) Held() algorithms.Limit {
	switch {
	case m.Limit < 0:
		return algorithms.Limit{}
	case m.Above > 0:
		return m.Rule.raised[m.Limit]
	}
	return m.Rule.Limits[m.Limit]
}

// Set is an immutable set of rules, safe for concurrent use. The zero value has
// no rules.
type Set struct {
	rules   []*Rule
	domains map[string]*index
	hash    string

	how         Options
	descriptors map[string]*Descriptors // by domain
	warnings    []Problem
	missing     bool
}

// Missing reports whether s stands for rules that are to come, so that nothing may be decided by it. It has none.
func (s *Set) Missing() bool { return s.missing }

// newSet takes over the rules, which are valid and in file order.
func newSet(rules []*Rule) *Set {
	byDomain := make(map[string][]*Rule)
	kinds := make(map[string]*kind)
	for i, r := range rules {
		if r.Descriptor != nil {
			r.order = i
			continue
		}
		r.prepare(i, kinds)
		if r.Enabled {
			byDomain[r.Domain] = append(byDomain[r.Domain], r)
		}
	}
	s := &Set{rules: rules, domains: make(map[string]*index, len(byDomain))}
	for domain, enabled := range byDomain {
		s.domains[domain] = newIndex(enabled)
	}
	return s
}

// Match appends to buf every limit that applies to req, or one Match if a rule exempts it from all, and
// returns the extended slice. The order is that of the files, of Rule.Per and of Rule.Limits. Match neither
// keeps req or buf nor allocates while buf has room, except for an attribute ip that looks like an address
// and is none.
//
// Its cost grows with the rules that ask for the same value as req in the
// attribute that tells most rules apart, not with all rules.
func (s *Set) Match(h ring.Hasher, req *Request, buf []Match) []Match {
	ix := s.domains[req.Domain]
	if ix == nil {
		return buf
	}
	if ix.ip {
		return ix.matchIP(h, req, buf)
	}
	return ix.match(h, req, buf)
}

// match is Match within a domain. An address in req is canonical.
func (ix *index) match(h ring.Hasher, req *Request, buf []Match) []Match {
	start := len(buf)
	buf = ix.appendMatches(buf, ix.always, h, req)
	for i := range req.Attributes {
		key := req.Attributes[i].Key
		if ix.names&nameBit(key) == 0 {
			continue
		}
		if a := ix.attributes[key]; a != nil {
			buf = ix.appendFiled(buf, a, h, req, req.valueOf(i))
		}
	}
	inFileOrder(buf[start:])
	if ix.linked {
		buf = applyPrecedence(buf, start)
	}
	return buf
}

// appendFiled appends the matches among what is filed under an attribute, which has
// a value in req.
func (ix *index) appendFiled(buf []Match, a *attributeIndex, h ring.Hasher, req *Request, value string) []Match {
	buf = ix.appendMatches(buf, a.exact.find(value, ix.filed), h, req)
	buf = ix.appendMatches(buf, a.present, h, req)
	for b := a.blocks.find(req.addr); b != nil; b = b.outer {
		buf = ix.appendMatches(buf, b.filed, h, req)
	}
	for n, rest := a.prefixes.root(), value; n != nil; n, rest = a.prefixes.next(n, rest) {
		buf = ix.appendMatches(buf, n.filed, h, req)
	}
	return buf
}

// appendMatches appends the limits of those candidates that do apply.
func (ix *index) appendMatches(buf []Match, candidates extent, h ring.Hasher, req *Request) []Match {
	filed := ix.filed[candidates.begin:candidates.end]
	for i := range filed {
		c := &filed[i]
		if c.when != nil && !c.holdsFor(req) {
			continue
		}
		if c.kind.unlimited {
			buf = append(buf, Match{Rule: c.rule, Limit: unlimited, rank: c.rank, kind: c.kind})
		} else if key, ok := c.kind.key(h, c.name(), req); ok {
			buf = c.appendCounters(buf, key)
		}
	}
	return buf
}

// appendCounters appends a match per limit of s, whose keys' common part is key.
func (s *subject) appendCounters(buf []Match, key ring.Key) []Match {
	if !s.kind.plain {
		return s.appendSpecial(buf, key)
	}
	for i, salt := range s.kind.salts {
		buf = append(buf, Match{Rule: s.rule, Limit: i, Per: s.index(), Key: key.With(salt), rank: s.rank, kind: s.kind})
	}
	return buf
}

// appendSpecial is appendCounters for a subject that is not plain.
func (s *subject) appendSpecial(buf []Match, key ring.Key) []Match {
	shadow := !enforced(key, s.kind.enforce)
	for i, salt := range s.kind.salts {
		m := Match{Rule: s.rule, Limit: i, Per: s.index(), Shadow: shadow, Key: key.With(salt), rank: s.rank, kind: s.kind}
		if s.kind.mode == Soft {
			m.Above = s.kind.above[i]
		}
		buf = append(buf, m)
	}
	return buf
}

func inFileOrder(matches []Match) {
	for i := 1; i < len(matches); i++ {
		if matches[i].rank < matches[i-1].rank { // limits of one subject are in order
			slices.SortStableFunc(matches, func(a, b Match) int { return cmp.Compare(a.rank, b.rank) })
			return
		}
	}
}

// Rule returns the rule of that name, nil if there is none.
func (s *Set) Rule(domain, id string) *Rule {
	for _, r := range s.rules {
		if r.Domain == domain && r.ID == id {
			return r
		}
	}
	return nil
}

// Rank returns r's index among the rules of its Set.
func (r *Rule) Rank() int { return r.order }

// Len returns how many rules there are, disabled ones included.
func (s *Set) Len() int { return len(s.rules) }

// Rules returns all rules in the order of the files, disabled ones included.
func (s *Set) Rules() iter.Seq[*Rule] { return slices.Values(s.rules) }

// Hash returns 16 hexadecimal digits that two sets share only if they decide
// alike: comments, formatting and the names of files do not matter, the order of
// rules does.
func (s *Set) Hash() string {
	if s.hash == "" {
		return emptyHash
	}
	return s.hash
}

// HasDomain reports whether there are rules of that domain.
func (s *Set) HasDomain(domain string) bool {
	return s.domains[domain] != nil || s.descriptors[domain] != nil
}

// Options returns how the files were read.
func (s *Set) Options() Options { return s.how }

// Warnings are what is odd about the files, but no reason to refuse them.
func (s *Set) Warnings() []Problem { return s.warnings }
