package rules

import (
	"github.com/weirlimit/weir/ring"
)

// Counters appends to buf a Match for every counter that the attributes of req
// choose, and that others do not: those of each set of Rule.Per of which req has
// all attributes, at least one. Conditions on attributes that req lacks do not
// matter, nor what rules say of each other. It is for showing what an identifier
// has used up. Its cost grows with all rules.
func (s *Set) Counters(h ring.Hasher, req *Request, buf []Match) []Match {
	req = canonicalOf(req)
next:
	for _, r := range s.rules {
		if r.Domain != req.Domain || !r.Enabled || r.Descriptor != nil {
			continue
		}
		for i := range r.When {
			c := &r.When[i]
			if _, given := req.value(c.Attribute); given && !c.holdsFor(req) {
				continue next
			}
		}
		if len(r.Per) > 0 {
			buf = r.counterMatches(h, req, buf)
		}
	}
	return buf
}

// Counters appends to buf a Match for every counter of r that the attributes of req choose, regardless of
// r's conditions. An unlimited rule has none.
func (r *Rule) Counters(h ring.Hasher, req *Request, buf []Match) []Match {
	if r.Unlimited {
		return buf
	}
	return r.counterMatches(h, canonicalOf(req), buf)
}

// counterMatches is Counters for a request whose addresses are canonical.
func (r *Rule) counterMatches(h ring.Hasher, req *Request, buf []Match) []Match {
	for i := range r.subjects {
		s := &r.subjects[i]
		if key, ok := s.kind.key(h, s.name, req); ok {
			buf = s.appendCounters(buf, key)
		}
	}
	return buf
}
