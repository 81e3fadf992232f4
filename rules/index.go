package rules

import (
	"cmp"
	"slices"

	"github.com/weirlimit/weir/ring"
)

// index finds the rules of one domain that a request may match. Every rule is
// filed under one attribute, with all values of one condition, or among always.
type index struct {
	attributes map[string]*attributeIndex
	always     []*Rule // rules that ask for no attribute
}

// attributeIndex holds the rules that are filed under one attribute.
type attributeIndex struct {
	exact    map[string][]*Rule
	prefixes prefixTree
	present  []*Rule // whatever the value is
}

func (a *attributeIndex) appendMatches(buf []Match, h ring.Hasher, req *Request, value string) []Match {
	buf = appendMatches(buf, a.exact[value], h, req)
	buf = appendMatches(buf, a.present, h, req)
	for t, rest := &a.prefixes, value; t != nil; t, rest = t.next(rest) {
		buf = appendMatches(buf, t.rules, h, req)
	}
	return buf
}

func newIndex(rules []*Rule) *index {
	ix := &index{attributes: make(map[string]*attributeIndex)}
	uses := countUses(rules)
	for _, r := range rules {
		p, ok := bestPlace(r, uses)
		if !ok {
			ix.always = append(ix.always, r)
			continue
		}
		a := ix.attributes[p.attribute]
		if a == nil {
			a = &attributeIndex{exact: make(map[string][]*Rule)}
			ix.attributes[p.attribute] = a
		}
		for _, value := range p.exact {
			a.exact[value] = append(a.exact[value], r)
		}
		for _, prefix := range p.prefixes {
			a.prefixes.insert(prefix, r)
		}
		if len(p.exact)+len(p.prefixes) == 0 {
			a.present = append(a.present, r)
		}
	}
	return ix
}

// place is where a rule can be filed: under values of an attribute, or under its
// mere presence if there are none.
type place struct {
	attribute       string
	exact, prefixes []string
}

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
	if len(p.exact)+len(p.prefixes) == 0 {
		yield(use{p.attribute, "", kindAny})
	}
}

// places returns where r can be filed.
func places(r *Rule) []place {
	var ps []place
	for _, c := range r.When {
		switch {
		case c.Absent:
		case c.any || len(c.regexps) > 0:
			ps = append(ps, place{attribute: c.Attribute})
		default:
			ps = append(ps, place{c.Attribute, c.exact, c.prefixes})
		}
	}
	for _, attribute := range r.Per {
		ps = append(ps, place{attribute: attribute})
	}
	return ps
}

// countUses says how many rules could be filed under each use.
func countUses(rules []*Rule) map[use]int {
	n := make(map[use]int)
	for _, r := range rules {
		for _, p := range places(r) {
			p.uses(func(u use) { n[u]++ })
		}
	}
	return n
}

// bestPlace returns the place that r shares with the fewest other rules: of a
// rule for POST to one endpoint, the endpoint.
func bestPlace(r *Rule, uses map[use]int) (place, bool) {
	ps := places(r)
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

// crowd is the largest number of rules that one of p's values can lead to.
func (p place) crowd(uses map[use]int) int {
	most := 0
	p.uses(func(u use) { most = max(most, uses[u]) })
	return most
}

// width ranks places by how much of the attribute's values they take in.
func (p place) width() int {
	switch {
	case len(p.exact)+len(p.prefixes) == 0:
		return 2
	case len(p.prefixes) > 0:
		return 1
	}
	return 0
}
