package rules

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weirlimit/weir/ring"
)

// index finds the rules of one domain that a request may match. Every subject
// is filed under one attribute, with all values of one condition, or among always.
type index struct {
	attributes map[string]*attributeIndex
	always     []*subject // those that ask for no attribute
	ip         bool       // a rule looks at the attribute ip
	linked     bool       // what a rule does depends on which others match
}

// attributeIndex holds the subjects that are filed under one attribute.
type attributeIndex struct {
	exact    map[string][]*subject
	prefixes prefixTree
	blocks   blockIndex
	present  []*subject // whatever the value is
}

func (a *attributeIndex) appendMatches(buf []Match, h ring.Hasher, req *Request, value string) []Match {
	buf = appendMatches(buf, a.exact[value], h, req)
	buf = appendMatches(buf, a.present, h, req)
	for b := a.blocks.find(req.addr); b != nil; b = b.outer {
		buf = appendMatches(buf, b.subjects, h, req)
	}
	for t, rest := &a.prefixes, value; t != nil; t, rest = t.next(rest) {
		buf = appendMatches(buf, t.subjects, h, req)
	}
	return buf
}

func newIndex(rules []*Rule) *index {
	ix := &index{attributes: make(map[string]*attributeIndex)}
	var subjects []*subject
	for _, r := range rules {
		for i := range r.subjects {
			subjects = append(subjects, &r.subjects[i])
		}
		ix.ip = ix.ip || r.looksAtIP()
		ix.linked = ix.linked || r.Unlimited || len(r.replaces) > 0 || r.parent != nil
	}
	blocks := make(map[netip.Prefix][]*subject) // of the attribute ip
	uses := countUses(subjects)
	for _, s := range subjects {
		p, ok := bestPlace(s, uses)
		s.when = unseen(s.rule.When, p)
		if !ok {
			ix.always = append(ix.always, s)
			continue
		}
		a := ix.attributes[p.attribute]
		if a == nil {
			a = &attributeIndex{exact: make(map[string][]*subject)}
			ix.attributes[p.attribute] = a
		}
		for _, value := range p.exact {
			a.exact[value] = append(a.exact[value], s)
		}
		for _, prefix := range p.prefixes {
			a.prefixes.insert(prefix, s)
		}
		for _, b := range p.blocks {
			blocks[b] = append(blocks[b], s)
		}
		if p.any() {
			a.present = append(a.present, s)
		}
	}
	if len(blocks) > 0 {
		ix.attributes[IPAttribute].blocks = newBlockIndex(blocks)
	}
	return ix
}

// unseen returns the conditions that may not hold for a request that has led to
// the place p.
func unseen(when []Condition, p place) (cs []*Condition) {
	for i := range when {
		if c := &when[i]; c.Attribute != p.attribute || p.any() && !c.any {
			cs = append(cs, c)
		}
	}
	return cs
}

func (r *Rule) looksAtIP() bool {
	return slices.ContainsFunc(r.When, func(c Condition) bool { return c.Attribute == IPAttribute }) ||
		slices.ContainsFunc(r.Per, func(set []string) bool { return slices.Contains(set, IPAttribute) })
}

// place is where a subject can be filed: under values of an attribute, or under its
// mere presence if there are none.
type place struct {
	attribute       string
	exact, prefixes []string
	blocks          []netip.Prefix
}

// any says whether p is the mere presence of the attribute.
func (p place) any() bool { return len(p.exact)+len(p.prefixes)+len(p.blocks) == 0 }

// use is one value or prefix of an attribute, or its presence.
type use struct {
	attribute, text string
	kind            patternKind
}

func (p place) uses(yield func(use)) {
	for _, v := range p.exact {
		yield(use{p.attribute, v, kindExact})
	}
	for _, v := range p.prefixes {
		yield(use{p.attribute, v, kindPrefix})
	}
	for _, b := range p.blocks {
		yield(use{p.attribute, b.String(), kindBlock})
	}
	if p.any() {
		yield(use{p.attribute, "", kindAny})
	}
}

// places returns where s can be filed.
func places(s *subject) []place {
	var ps []place
	for _, c := range s.rule.When {
		switch {
		case c.Absent:
		case c.any, len(c.regexps) > 0, len(c.prefixes) > 0 && len(c.blocks) > 0: // both could hold
			ps = append(ps, place{attribute: c.Attribute})
		default:
			ps = append(ps, place{c.Attribute, c.exact, c.prefixes, c.blocks})
		}
	}
	for _, attribute := range s.per {
		ps = append(ps, place{attribute: attribute})
	}
	return ps
}

// countUses says how many subjects could be filed under each use.
func countUses(subjects []*subject) map[use]int {
	n := make(map[use]int)
	for _, s := range subjects {
		for _, p := range places(s) {
			p.uses(func(u use) { n[u]++ })
		}
	}
	return n
}

// bestPlace returns the place that s shares with the fewest others: of a rule
// for POST to one endpoint, the endpoint.
func bestPlace(s *subject, uses map[use]int) (place, bool) {
	ps := places(s)
	if len(ps) == 0 {
		return place{}, false
	}
	return slices.MinFunc(ps, func(a, b place) int {
		return cmp.Or(
			cmp.Compare(a.crowd(uses), b.crowd(uses)),
			cmp.Compare(a.width(), b.width()),
			cmp.Compare(a.attribute, b.attribute),
		)
	}), true
}

// crowd is the largest number of subjects that one of p's values can lead to.
func (p place) crowd(uses map[use]int) int {
	most := 0
	p.uses(func(u use) { most = max(most, uses[u]) })
	return most
}

// width ranks places by how much of the attribute's values they take in.
func (p place) width() int {
	switch {
	case p.any():
		return 2
	case len(p.prefixes)+len(p.blocks) > 0:
		return 1
	}
	return 0
}
