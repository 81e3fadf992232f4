package rules

import (
	"maps"
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/weirlimit/weir/algorithms"
	"github.com/weirlimit/weir/ring"
	"github.com/weirlimit/weir/rules/envoy"
	"github.com/weirlimit/weir/rules/internal/problem"
)

// This file makes rules of the descriptors of envoyproxy/ratelimit: a Rule for each of their limits, so that
// lists, differences and metrics include it.

// Descriptors are the descriptors of one domain, with their rules. They are immutable.
type Descriptors struct {
	tree  *envoy.Tree
	rules []*Rule // by envoy.Descriptor.Index
}

// Match returns the rule for the entries of a descriptor in a request, and the key of
// its counter. The rule is nil if there is none, and the key means nothing if it is
// unlimited.
func (d *Descriptors) Match(h ring.Hasher, entries []Attribute) (*Rule, ring.Key) {
	found, key := d.tree.Match(h, entries)
	if found == nil {
		return nil, key
	}
	return d.rules[found.Index], key
}

// Explain says why no limit stands where the entries lead, as a sentence without its full
// stop, or nothing if one does.
func (d *Descriptors) Explain(entries []Attribute) string { return d.tree.Explain(entries) }

// AppendName appends what metrics call a rule to which the entries have led.
func (d *Descriptors) AppendName(b []byte, rule *Rule, entries []Attribute) []byte {
	return d.tree.AppendName(b, rule.Descriptor, entries)
}

// descriptors reads a document of envoyproxy/ratelimit, and makes rules of its limits.
func (d *decoder) descriptors(n *yaml.Node, at problem.Path) {
	tree, found := d.envoy.Document(d.file, n, at)
	if tree == nil {
		return
	}
	domain := d.described[tree.Domain]
	if domain == nil {
		domain = &Descriptors{tree: tree}
		d.described[tree.Domain] = domain
	}
	for _, one := range found {
		r := descriptorRule(tree.Domain, one)
		domain.rules = append(domain.rules, r)
		d.addRule(r)
	}
}

// descriptorRule makes the Rule of a descriptor.
func descriptorRule(domain string, d *envoy.Descriptor) *Rule {
	r := defaultRule()
	r.Domain, r.ID, r.Unlimited, r.Descriptor = domain, d.ID, d.Unlimited, d
	r.OnFailure = FailLocal // Envoy has its own failure policy, but a share is better than that
	r.file, r.line, r.column = d.File, d.Line, d.Column
	if d.Shadow {
		r.Enforce = 0
	}
	if d.Limit != (algorithms.Limit{}) {
		r.Limits = []algorithms.Limit{d.Limit}
	}
	return r
}

// describe takes over the descriptors, whose rules are among those of s.
func (s *Set) describe(how Options, descriptors map[string]*Descriptors) {
	s.how, s.descriptors = how, descriptors
	s.hash = hashOf(s.rules, how, s.describedDocuments())
}

// describedDocuments returns the documents of envoyproxy/ratelimit, by domain.
func (s *Set) describedDocuments() []Document {
	var docs []Document
	for _, domain := range slices.Sorted(maps.Keys(s.descriptors)) {
		docs = append(docs, Document{Domain: domain, Descriptors: s.descriptors[domain].tree.Specs()})
	}
	return docs
}

// DescriptorFiles returns the domains with descriptors, each as a file: all of them, or
// the one domain.
func (s *Set) DescriptorFiles(domain string) ([]string, error) {
	var files []string
	for _, doc := range s.describedDocuments() {
		if domain != "" && doc.Domain != domain {
			continue
		}
		text, err := Format([]Document{doc})
		if err != nil {
			return nil, err
		}
		files = append(files, string(text))
	}
	return files, nil
}

// Descriptors returns those of a domain, nil if it has none.
func (s *Set) Descriptors(domain string) *Descriptors { return s.descriptors[domain] }

// WithoutDescriptors returns s without its descriptors, and the domains that have any, in order. Rules that are in force are never an
// error, even if a file could not have them any more.
func (s *Set) WithoutDescriptors() (rest *Set, domains []string, err error) {
	if len(s.descriptors) == 0 {
		return s, nil, nil
	}
	docs := s.Documents()
	for i := range docs {
		docs[i].Descriptors = nil
	}
	rest, err = s.how.compileStored("rules in force", docs)
	return rest, slices.Sorted(maps.Keys(s.descriptors)), err
}
