package rules

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlimit/weir/rules/internal/counter"
)

// index finds the rules of one domain that a request may match. Every subject
// is filed under one attribute, with all values of one condition, or among always.
type index struct {
	filed      []filedSubject // what is filed in one place stands side by side
	attributes map[string]*attributeIndex
	names      uint64 // nameBit of all keys of attributes
	always     extent // those that ask for no attribute
	ip         bool   // a rule looks at the attribute ip
	ipText     bool   // and at how an address is written
	linked     bool   // what a rule does depends on which others match
}

// extent is a range of index.filed.
type extent struct{ begin, end uint32 }

// attributeIndex holds the subjects that are filed under one attribute.
type attributeIndex struct {
	exact    table
	prefixes prefixTree
	blocks   *blockIndex // nil if there are none
	present  extent      // with any value
}

// nameBit returns one bit that names of attributes have in common with few others.
func nameBit(name string) uint64 {
	if name == "" {
		return 1
	}
	return 1 << ((uint(len(name)) + 5*uint(name[0]) + 11*uint(name[len(name)-1])) % 64)
}

// filing is an index that is being made: which rules are to be filed where.
type filing struct {
	attributes map[string]*attributeFiling
	always     []*subjectToFile
	whens      map[string]*unseen // by their encodings
}

// subjectToFile is a subject with what its place in the index does not see to: conditions,
// and the value that one of them asks for.
type subjectToFile struct {
	*namedSubject
	when *unseen
	only string
}

type attributeFiling struct {
	exact, prefixes map[string][]*subjectToFile
	blocks          map[netip.Prefix][]*subjectToFile
	present         []*subjectToFile
}

func newIndex(rules []*Rule) *index {
	ix := &index{attributes: make(map[string]*attributeIndex)}
	var subjects []*namedSubject
	for _, r := range rules {
		for i := range r.subjects {
			subjects = append(subjects, &r.subjects[i])
		}
		ix.ip = ix.ip || r.looksAtIP()
		ix.ipText = ix.ipText || slices.ContainsFunc(r.When, readsAddress)
		ix.linked = ix.linked || r.Unlimited || len(r.replacedRules) > 0 || r.parent != nil
	}
	f := filing{attributes: make(map[string]*attributeFiling), whens: make(map[string]*unseen)}
	uses := countUses(subjects)
	for _, s := range subjects {
		p, ok := bestPlace(s, uses)
		toFile := &subjectToFile{namedSubject: s}
		toFile.when, toFile.only = f.unseen(s.rule.When, p)
		if !ok {
			f.always = append(f.always, toFile)
		} else {
			f.at(p.attribute).add(toFile, p)
		}
	}
	ix.always = ix.file(f.always, "")
	for name, a := range f.attributes {
		ix.attributes[name] = ix.newAttribute(a)
		ix.names |= nameBit(name)
	}
	return ix
}

func (f *filing) at(attribute string) *attributeFiling {
	a := f.attributes[attribute]
	if a == nil {
		a = &attributeFiling{
			exact: make(map[string][]*subjectToFile), prefixes: make(map[string][]*subjectToFile),
			blocks: make(map[netip.Prefix][]*subjectToFile),
		}
		f.attributes[attribute] = a
	}
	return a
}

// add files s in the place p.
func (a *attributeFiling) add(s *subjectToFile, p place) {
	for _, value := range p.exact {
		a.exact[value] = append(a.exact[value], s)
	}
	for _, prefix := range p.prefixes {
		a.prefixes[prefix] = append(a.prefixes[prefix], s)
	}
	for _, b := range p.blocks {
		a.blocks[b] = append(a.blocks[b], s)
	}
	if p.any() {
		a.present = append(a.present, s)
	}
}

// file puts subjects side by side, filed under an exact value if it is not empty.
func (ix *index) file(subjects []*subjectToFile, value string) extent {
	begin := len(ix.filed)
	for _, s := range subjects {
		ix.filed = append(ix.filed, newFiledSubject(s, value))
	}
	return extent{uint32(begin), uint32(len(ix.filed))}
}

func (ix *index) newAttribute(f *attributeFiling) *attributeIndex {
	return &attributeIndex{
		present:  ix.file(f.present, ""),
		exact:    newTable(ix.fileExact(f.exact)),
		prefixes: newPrefixTree(fileAll(ix, f.prefixes, strings.Compare)),
		blocks:   newBlockIndex(fileAll(ix, f.blocks, netip.Prefix.Compare)),
	}
}

// fileExact is fileAll for exact values, which the filed subjects know.
func (ix *index) fileExact(subjects map[string][]*subjectToFile) map[string]extent {
	extents := make(map[string]extent, len(subjects))
	for _, value := range slices.Sorted(maps.Keys(subjects)) {
		extents[value] = ix.file(subjects[value], value)
	}
	return extents
}

// fileAll is file for subjects by what they are filed under.
func fileAll[K comparable](ix *index, subjects map[K][]*subjectToFile, compare func(K, K) int) map[K]extent {
	runs := make(map[K]extent, len(subjects))
	for _, k := range slices.SortedFunc(maps.Keys(subjects), compare) {
		runs[k] = ix.file(subjects[k], "")
	}
	return runs
}

// unseen returns the conditions that may not hold for a request that has led to the place
// p, the same pointer for all rules that ask the same, and the value of its only.
func (f *filing) unseen(when []Condition, p place) (u *unseen, only string) {
	u = new(unseen)
	for i := range when {
		switch c := &when[i]; {
		case c.Attribute == p.attribute && (!p.any() || c.any):
		case u.only == "" && c.isOnly():
			u.only, only = c.Attribute, c.only
		default:
			u.rest = append(u.rest, c)
		}
	}
	if u.only == "" && len(u.rest) == 0 {
		return nil, ""
	}
	encoding := counter.AppendText(nil, u.only)
	for _, c := range u.rest {
		encoding = c.appendTo(encoding)
	}
	if known := f.whens[string(encoding)]; known != nil {
		return known, only
	}
	f.whens[string(encoding)] = u
	return u, only
}

func (r *Rule) looksAtIP() bool {
	return slices.ContainsFunc(r.When, func(c Condition) bool { return c.Attribute == IPAttribute }) ||
		slices.ContainsFunc(r.Per, func(set []string) bool { return slices.Contains(set, IPAttribute) })
}

// readsAddress says whether c depends on how an address is written.
func readsAddress(c Condition) bool {
	return c.Attribute == IPAttribute && len(c.prefixes)+len(c.regexps) > 0
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
func places(s *namedSubject) []place {
	var ps []place
	for _, c := range s.rule.When {
		switch {
		case c.Absent:
		case c.any, len(c.regexps) > 0, len(c.prefixes) > 0 && hasWide(c.blocks): // both could hold
			ps = append(ps, place{attribute: c.Attribute})
		default:
			ps = append(ps, place{c.Attribute, c.exact, c.prefixes, c.blocks})
		}
	}
	for _, attribute := range s.kind.per {
		ps = append(ps, place{attribute: attribute})
	}
	return ps
}

// countUses says how many subjects could be filed under each use.
func countUses(subjects []*namedSubject) map[use]int {
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
func bestPlace(s *namedSubject, uses map[use]int) (place, bool) {
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
	case len(p.prefixes) > 0 || hasWide(p.blocks):
		return 1
	}
	return 0
}

// hasWide says whether one of the blocks has more than one address.
func hasWide(blocks []netip.Prefix) bool {
	return slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return !b.IsSingleIP() })
}
